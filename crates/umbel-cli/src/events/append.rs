//! `umbel append`: appends events from a file or a pipe to an event store or at a server, and
//! prints a line for each acknowledged event.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    let output_failed = Arc::new(AtomicBool::new(false));
    let has_failed = Arc::clone(&output_failed);
    let print = move || {
        // The receiver is gone only where the command has failed already.
        let _ = done.send(print_acknowledged(&waiting, &has_failed));
    };
    let printer = env.threads.spawn("umbel-append", Box::new(print))?;
    let progress = Progress::new(&name, Unit::Bytes, total, &env.clock);
    let lines = LineReader::new(input, LINE_BYTES_MAX);
    let target = StoreTarget { store: &store, pending_appends: tickets, output_failed };
    let mut append =
        AppendRun { args, target, done: AppendedLines::none_of(name.as_str()), progress };
    let read = append.append_lines(lines, &consumed);
    append.progress.finish();
    let appended = append.done;
    drop(append);
    printer.join();
    let printed = printed.recv().unwrap_or(Ok(()));
    // Errors of acknowledgements come first, then those of the input, then an error of the output.
    // Each of them names the lines that were appended.
    let closed = store.close();
    let output_failure = match printed {
        Ok(()) => None,
        Err(PrintFailure::Append(failure)) => return Err(failure),
        Err(PrintFailure::Output(failure)) => Some(failure),
    };
    read?;
    closed?;
    appended.report(output_failure)
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
    let target = ServerTarget {
        runtime,
        connection,
        entropy: env.entropy,
        output: Output::new(),
        output_failure: None,
    };
    let mut append =
        AppendRun { args, target, done: AppendedLines::none_of(name.as_str()), progress };
    let read = append.append_lines(LineReader::new(input, LINE_BYTES_MAX), &consumed);
    append.progress.finish();
    read?;
    append.done.report(append.target.output_failure)
}

/// Lines of the input that were appended.
#[derive(Debug, Clone, Copy)]
struct AppendedLines<'a> {
    /// Name of the input.
    name: &'a str,
    /// Number of the last line that was submitted; 0 if none was.
    last: u64,
    /// Whether later lines were not appended because standard output failed.
    is_cut: bool,
    /// Number of damaged lines that were skipped.
    skipped: u64,
}

impl<'a> AppendedLines<'a> {
    fn none_of(name: &'a str) -> AppendedLines<'a> {
        AppendedLines { name, last: 0, is_cut: false, skipped: 0 }
    }

    /// Fate of the lines up to the last submitted one.
    fn outcome(self) -> &'static str {
        match self.skipped {
            0 => "were appended",
            _ => "were appended or skipped",
        }
    }

    /// Reports skipped lines, and an error of standard output with the lines that were appended.
    fn report(self, output_failure: Option<CommandError>) -> CommandResult<()> {
        if self.skipped > 0 {
            note(&format!("umbel: {} skipped", numbers::counted(self.skipped, "damaged line")));
        }
        let (name, last, outcome) = (self.name, self.last, self.outcome());
        match output_failure {
            None => Ok(()),
            Some(failure) if self.is_cut => Err(CommandError::System(format!(
                "{name}, line {last}: {failure}; the lines up to line {last} {outcome}, and those \
                 after it were not"
            ))),
            Some(CommandError::OutputClosed) => Err(CommandError::OutputClosed),
            Some(failure) => Err(CommandError::System(format!(
                "the lines of {name} {outcome}, but the command {failure}"
            ))),
        }
    }
}

/// Reason why the acknowledgements of submitted appends were not all printed.
enum PrintFailure {
    /// An append failed.
    Append(CommandError),
    /// Standard output failed; every submitted append was acknowledged.
    Output(CommandError),
}

/// Waits for submitted appends in order, and prints each one once it is acknowledged. After a
/// failure of standard output it sets `output_failed`, and only waits.
fn print_acknowledged(
    waiting: &Receiver<(PendingAppend, EventLine)>,
    output_failed: &AtomicBool,
) -> Result<(), PrintFailure> {
    let printed = print_lines(waiting);
    if let Err(PrintFailure::Output(_)) = &printed {
        output_failed.store(true, Ordering::Relaxed);
        while let Ok((ticket, _)) = waiting.recv() {
            ticket.wait().map_err(append_failure)?;
        }
    }
    printed
}

fn print_lines(waiting: &Receiver<(PendingAppend, EventLine)>) -> Result<(), PrintFailure> {
    let mut output = Output::new();
    loop {
        let (ticket, line) = match waiting.try_recv() {
            Ok(next) => next,
            Err(_) => {
                // A reader of the output sees what there is while nothing comes.
                output.flush().map_err(PrintFailure::Output)?;
                match waiting.recv() {
                    Ok(next) => next,
                    Err(_) => return Ok(()),
                }
            }
        };
        let answers = ticket.wait().map_err(append_failure)?;
        if let Some((revision, position)) =
            answers.first().and_then(|a| Some((a.last?, a.position?)))
        {
            let acknowledgement = line.acknowledgement(revision, position);
            output.line(&acknowledgement).map_err(PrintFailure::Output)?;
        }
    }
}

fn append_failure(error: umbel_events::Error) -> PrintFailure {
    PrintFailure::Append(CommandError::from(error))
}

/// Destination of the appended lines.
trait AppendTarget {
    /// Generates the id of an event whose line has none.
    fn new_id(&self) -> Result<EventId, umbel_events::Error>;

    /// Whether no more lines are appended, because their acknowledgements cannot be printed.
    fn output_failed(&self) -> bool;

    /// Appends the event of a line. Returns `false` if no thread waits for acknowledgements any
    /// more.
    fn append(&mut self, line: EventLine) -> Result<bool, AppendFailure>;

    /// Whether the event may have been appended although the call failed.
    fn may_have_appended(&self, failure: &CommandError) -> bool;
}

/// An open store. Another thread prints the acknowledgements.
struct StoreTarget<'a> {
    store: &'a Store,
    pending_appends: SyncSender<(PendingAppend, EventLine)>,
    output_failed: Arc<AtomicBool>,
}

impl AppendTarget for StoreTarget<'_> {
    fn new_id(&self) -> Result<EventId, umbel_events::Error> {
        self.store.new_id()
    }

    fn output_failed(&self) -> bool {
        self.output_failed.load(Ordering::Relaxed)
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

    fn may_have_appended(&self, _: &CommandError) -> bool {
        // The thread that waits for acknowledgements reports appends that had begun.
        false
    }
}

/// A server.
struct ServerTarget {
    runtime: Runtime,
    connection: Connection,
    entropy: Arc<dyn Entropy>,
    output: Output,
    /// Error of the output after an append.
    output_failure: Option<CommandError>,
}

impl AppendTarget for ServerTarget {
    fn new_id(&self) -> Result<EventId, umbel_events::Error> {
        let mut random = [0; 16];
        self.entropy.fill(&mut random)?;
        Ok(EventId::from_random(random))
    }

    fn output_failed(&self) -> bool {
        self.output_failure.is_some()
    }

    fn append(&mut self, line: EventLine) -> Result<bool, AppendFailure> {
        let event = line.event();
        let append = stream_writes::append(&self.connection, &line.stream, line.expected, &event);
        let AppendedEvent { revision, position } = self.runtime.block_on(append)?;
        let printed = self.output.line(&line.acknowledgement(revision, position));
        // The event is appended, so this is no failure of the append.
        self.output_failure = printed.and_then(|()| self.output.flush()).err();
        Ok(true)
    }

    fn may_have_appended(&self, failure: &CommandError) -> bool {
        // The connection can end between the append and its acknowledgement.
        matches!(failure, CommandError::System(_))
    }
}

struct AppendRun<'a, T> {
    args: &'a AppendArgs,
    target: T,
    done: AppendedLines<'a>,
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
                piece.map_err(|e| CommandError::system("read", Path::new(self.done.name), &e))?;
            let number = lines.count();
            let parsed = match piece {
                None => return Ok(()),
                Some(Piece::Whole) if lines.line().trim_ascii().is_empty() => continue,
                Some(_) if self.target.output_failed() => {
                    self.done.is_cut = true;
                    return Ok(());
                }
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
                return Ok(());
            }
            self.progress.set(consumed.get(), || numbers::counted(number, "line"));
        }
    }

    /// Submits an event. Returns `false` if no thread waits for acknowledgements any more.
    fn append(&mut self, number: u64, line: EventLine) -> CommandResult<bool> {
        match self.target.append(line) {
            Ok(is_awaited) => {
                self.done.last = number;
                Ok(is_awaited)
            }
            Err(AppendFailure::Failed(failure)) => {
                let appended = match self.done.last {
                    0 => "no line before it was appended".to_string(),
                    _ => self.appended_text(),
                };
                let itself = match self.target.may_have_appended(&failure) {
                    true => {
                        "; it may have been appended, too: read its stream before you repeat it"
                    }
                    false => "",
                };
                let name = self.done.name;
                Err(failure.with_prefix(&format!("{name}, line {number} ({appended}{itself})")))
            }
            Err(AppendFailure::Refused(reason) | AppendFailure::Conflict(reason)) => {
                self.report_bad_line(number, &reason)
            }
        }
    }

    fn appended_text(&self) -> String {
        match self.done.last {
            0 => "no line was appended".to_string(),
            _ => format!("the lines before it {}", self.done.outcome()),
        }
    }

    fn report_bad_line(&mut self, number: u64, reason: &str) -> CommandResult<bool> {
        let place = format!("{}, line {number}: {reason}", self.done.name);
        if !self.args.skip_bad {
            let appended = self.appended_text();
            return Err(CommandError::usage(format!(
                "{place}; {appended}; correct the line and append it and the lines after it, or \
                 skip bad lines with --skip-bad"
            )));
        }
        self.done.skipped += 1;
        if self.done.skipped <= REPORTED_BAD_LINES_MAX {
            note(&format!("umbel: {place}; skipped"));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: damaged lines that `--skip-bad` left out were called appended.
    #[test]
    fn skipped_lines_are_not_called_appended() {
        let message = |is_cut: bool, skipped: u64| {
            let done = AppendedLines { name: "events", last: 7, is_cut, skipped };
            let failure = CommandError::System("could not write".to_string());
            done.report(Some(failure)).unwrap_err().to_string()
        };
        assert_eq!(
            message(true, 1),
            "events, line 7: could not write; the lines up to line 7 were appended or skipped, and \
             those after it were not"
        );
        let all = "the lines of events were appended or skipped, but the command could not write";
        assert_eq!(message(false, 1), all);
        assert!(message(true, 0).contains("the lines up to line 7 were appended, and"));
        assert!(message(false, 0).contains("the lines of events were appended, but"));
    }
}
