//! `umbel append`: appends events from a file or a pipe to an event store or at a server, and
//! prints a line for each acknowledged event.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::runtime::Runtime;
use umbel::Durability;
use umbel_env::{Entropy, Env};
use umbel_events::{AppendRequest, EventId, PendingAppend, Store, StreamAppend, limits};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::stream_writes::{self, AppendFailure, AppendedEvent};
use crate::events::event_args::AppendArgs;
use crate::events::event_json::{EventLine, LineDefaults};
use crate::events::open_event_store;
use crate::events::remaining_data::with_server_remedy;
use crate::global_options::StoreLimits;
use crate::io::input::{self, CountingReader};
use crate::io::line_reader::{LineReader, ReadLine as Piece};
use crate::io::output::{Output, note};
use crate::io::progress::{Progress, Unit};
use crate::text::numbers;

/// Remedy where a server has the store open.
const AT_A_SERVER: &str = "append there: umbel append --connect ADDRESS";
/// Maximum number of appends that are not acknowledged yet.
const IN_FLIGHT_MAX: usize = 1024;
/// Maximum bytes of an input line: two for each byte of the largest event, and the JSON around
/// them.
pub const LINE_BYTES_MAX: usize = 2 * limits::EVENT_BYTES_MAX + (64 << 10);
/// Maximum number of damaged lines that `--skip-bad` names; the others are only counted.
pub const REPORTED_BAD_LINES_MAX: u64 = 10;

/// Appends the events of the input.
pub fn run(directory: Option<&Path>, args: &AppendArgs, limits: StoreLimits) -> CommandResult<()> {
    if let Some(connect) = &args.connect {
        return run_on_server(connect, args);
    }
    let (name, input, total) = input::open(args.file.as_deref())?;
    let (input, consumed) = CountingReader::new(input);
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let store = open_event_store::open_or_create(directory, limits, durability)
        .map_err(|failure| with_server_remedy(failure, limits, AT_A_SERVER))?;
    let env = Env::system();
    let (tickets, waiting) = sync_channel(IN_FLIGHT_MAX);
    let (done, printed) = sync_channel(1);
    let print = move || {
        // The receiver is gone only where the command has failed already.
        let _ = done.send(print_acknowledged(&waiting));
    };
    let printer = env.threads.spawn("umbel-append", Box::new(print))?;
    let progress = Progress::new(&name, Unit::Bytes, total, &env.clock);
    let lines = LineReader::new(input, LINE_BYTES_MAX);
    let name = name.as_str();
    let mut append = AppendRun {
        name,
        args,
        target: StoreTarget { store: &store, pending_appends: tickets },
        skipped: 0,
        submitted: 0,
        cut: None,
        progress,
    };
    let read = append.append_lines(lines, &consumed);
    append.progress.finish();
    let (skipped, cut) = (append.skipped, append.cut);
    drop(append);
    printer.join();
    let printed = printed.recv().unwrap_or(Ok(()));
    // Errors of acknowledgements are reported before those of the input.
    let closed = store.close();
    if let (Some(line), Err(CommandError::OutputClosed)) = (cut, &printed) {
        closed?;
        return Err(CommandError::System(format!(
            "{name}, line {line}: standard output was closed; the lines after line {line} were \
             not appended"
        )));
    }
    printed?;
    read?;
    closed?;
    report_skipped(skipped);
    Ok(())
}

/// Appends the events of the input at a server, each after the acknowledgement of the one before.
/// So a refused line is the first one that is not appended.
fn run_on_server(connect: &str, args: &AppendArgs) -> CommandResult<()> {
    let address = ConnectionString::parse("--connect", connect)?;
    let (name, input, total) = input::open(args.file.as_deref())?;
    let (input, consumed) = CountingReader::new(input);
    let env = Env::system();
    let runtime = grpc_connection::runtime()?;
    let connection = runtime.block_on(Connection::open(&address))?;
    let progress = Progress::new(&name, Unit::Bytes, total, &env.clock);
    let target = ServerTarget { runtime, connection, entropy: env.entropy, output: Output::new() };
    let mut append = AppendRun {
        name: name.as_str(),
        args,
        target,
        skipped: 0,
        submitted: 0,
        cut: None,
        progress,
    };
    let read = append.append_lines(LineReader::new(input, LINE_BYTES_MAX), &consumed);
    append.progress.finish();
    read?;
    report_skipped(append.skipped);
    Ok(())
}

fn report_skipped(lines: u64) {
    if lines > 0 {
        note(&format!("umbel: {} skipped", numbers::counted(lines, "damaged line")));
    }
}

/// Waits for submitted appends in order, and prints each one once it is acknowledged.
fn print_acknowledged(waiting: &Receiver<(PendingAppend, EventLine)>) -> CommandResult<()> {
    let mut output = Output::new();
    loop {
        let (ticket, line) = match waiting.try_recv() {
            Ok(next) => next,
            Err(_) => {
                // A reader of the output sees what there is while nothing comes.
                output.flush()?;
                match waiting.recv() {
                    Ok(next) => next,
                    Err(_) => return Ok(()),
                }
            }
        };
        let answers = ticket.wait()?;
        if let Some((revision, position)) =
            answers.first().and_then(|a| Some((a.last?, a.position?)))
        {
            output.line(&line.acknowledgement(revision, position))?;
        }
    }
}

/// Destination of the appended lines.
trait AppendTarget {
    /// Generates the id of an event whose line has none.
    fn new_id(&self) -> Result<EventId, umbel_events::Error>;

    /// Appends the event of a line. Returns `false` if no thread waits for acknowledgements any
    /// more.
    fn append(&mut self, line: EventLine) -> Result<bool, AppendFailure>;
}

/// An open store. Another thread prints the acknowledgements.
struct StoreTarget<'a> {
    store: &'a Store,
    pending_appends: SyncSender<(PendingAppend, EventLine)>,
}

impl AppendTarget for StoreTarget<'_> {
    fn new_id(&self) -> Result<EventId, umbel_events::Error> {
        self.store.new_id()
    }

    fn append(&mut self, line: EventLine) -> Result<bool, AppendFailure> {
        let events = [line.event()];
        let append =
            StreamAppend { stream: &line.stream, expected: line.expected, events: &events };
        match self.store.submit(&AppendRequest { appends: &[append], checks: &[] }) {
            Ok(ticket) => Ok(self.pending_appends.send((ticket, line)).is_ok()),
            // Later lines would fail for the same reason.
            Err(
                error @ (umbel_events::Error::Store(_)
                | umbel_events::Error::LogQuotaExceeded { .. }),
            ) => Err(AppendFailure::Failed(CommandError::from(error))),
            Err(error) => Err(AppendFailure::Refused(error.to_string())),
        }
    }
}

/// A server.
struct ServerTarget {
    runtime: Runtime,
    connection: Connection,
    entropy: Arc<dyn Entropy>,
    output: Output,
}

impl AppendTarget for ServerTarget {
    fn new_id(&self) -> Result<EventId, umbel_events::Error> {
        let mut random = [0; 16];
        self.entropy.fill(&mut random)?;
        Ok(EventId::from_random(random))
    }

    fn append(&mut self, line: EventLine) -> Result<bool, AppendFailure> {
        let event = line.event();
        let append = stream_writes::append(&self.connection, &line.stream, line.expected, &event);
        let AppendedEvent { revision, position } = self.runtime.block_on(append)?;
        let printed = self.output.line(&line.acknowledgement(revision, position));
        printed.and_then(|()| self.output.flush()).map_err(AppendFailure::Failed)?;
        Ok(true)
    }
}

struct AppendRun<'a, T> {
    name: &'a str,
    args: &'a AppendArgs,
    target: T,
    skipped: u64,
    /// Number of submitted lines.
    submitted: u64,
    /// The last line that was appended, if later lines were not because no thread waits for
    /// acknowledgements any more.
    cut: Option<u64>,
    progress: Progress,
}

impl<T: AppendTarget> AppendRun<'_, T> {
    fn append_lines<R: Read>(
        &mut self,
        mut lines: LineReader<R>,
        consumed: &Cell<u64>,
    ) -> CommandResult<()> {
        let defaults = LineDefaults {
            stream: self.args.stream.as_deref(),
            kind: self.args.kind.as_deref(),
            expected: self.args.expected,
            has_flags: true,
        };
        loop {
            let piece = lines.next();
            let piece =
                piece.map_err(|e| CommandError::system("read", Path::new(self.name), &e))?;
            let number = lines.count();
            let parsed = match piece {
                None => return Ok(()),
                Some(Piece::Whole) if lines.line().trim_ascii().is_empty() => continue,
                Some(Piece::Whole) => {
                    EventLine::parse(lines.line(), &defaults, || self.target.new_id())
                }
                Some(Piece::TooLong) => {
                    Err(format!("has more than {LINE_BYTES_MAX} bytes, the limit of an event line"))
                }
            };
            let accepted = match parsed {
                Ok(line) => self.append(number, line),
                Err(reason) => self.report_bad_line(number, &reason),
            };
            if !accepted? {
                self.cut = Some(number);
                return Ok(());
            }
            self.progress.set(consumed.get(), || numbers::counted(number, "line"));
        }
    }

    /// Submits an event. Returns `false` if no thread waits for acknowledgements any more.
    fn append(&mut self, number: u64, line: EventLine) -> CommandResult<bool> {
        match self.target.append(line) {
            Ok(is_awaited) => {
                self.submitted += 1;
                Ok(is_awaited)
            }
            Err(AppendFailure::Failed(failure)) => {
                let (name, appended) = (self.name, self.appended_text());
                Err(failure.with_prefix(&format!("{name}, line {number} ({appended})")))
            }
            Err(AppendFailure::Refused(reason) | AppendFailure::Conflict(reason)) => {
                self.report_bad_line(number, &reason)
            }
        }
    }

    fn appended_text(&self) -> &'static str {
        match self.submitted {
            0 => "no line was appended",
            _ => "the lines before it were appended",
        }
    }

    fn report_bad_line(&mut self, number: u64, reason: &str) -> CommandResult<bool> {
        let place = format!("{}, line {number}: {reason}", self.name);
        if !self.args.skip_bad {
            let appended = self.appended_text();
            return Err(CommandError::usage(format!(
                "{place}; {appended}; correct the line and append it and the lines after it, or \
                 skip bad lines with --skip-bad"
            )));
        }
        self.skipped += 1;
        if self.skipped <= REPORTED_BAD_LINES_MAX {
            note(&format!("umbel: {place}; skipped"));
        }
        Ok(true)
    }
}
