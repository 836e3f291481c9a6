//! `umbel append`: appends events from a file or a pipe to an event store, and prints a line for
//! each acknowledged event.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use umbel::Durability;
use umbel_env::Env;
use umbel_events::{AppendRequest, PendingAppend, Store, StreamAppend, limits};

use crate::errors::{CommandError, CommandResult};
use crate::events::event_args::AppendArgs;
use crate::events::event_json::{EventLine, LineDefaults};
use crate::events::open_event_store;
use crate::global_options::StoreLimits;
use crate::io::input::{self, CountingReader};
use crate::io::line_reader::{LineReader, ReadLine as Piece};
use crate::io::output::{Output, note};
use crate::io::progress::{Progress, Unit};
use crate::text::numbers;

/// Maximum number of appends that are not acknowledged yet.
const IN_FLIGHT_MAX: usize = 1024;
/// Maximum bytes of an input line: two for each byte of the largest event, and the JSON around
/// them.
pub const LINE_BYTES_MAX: usize = 2 * limits::EVENT_BYTES_MAX + (64 << 10);
/// Maximum number of damaged lines that `--skip-bad` names; the others are only counted.
pub const REPORTED_BAD_LINES_MAX: u64 = 10;

/// Appends the events of the input.
pub fn run(directory: Option<&Path>, args: &AppendArgs, limits: StoreLimits) -> CommandResult<()> {
    let (name, input, total) = input::open(args.file.as_deref())?;
    let (input, consumed) = CountingReader::new(input);
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let store = open_event_store::open_or_create(directory, limits, durability)?;
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
        store: &store,
        pending_appends: tickets,
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
    if skipped > 0 {
        note(&format!("umbel: {} damaged lines skipped", numbers::grouped(skipped)));
    }
    Ok(())
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

struct AppendRun<'a> {
    name: &'a str,
    args: &'a AppendArgs,
    store: &'a Store,
    pending_appends: SyncSender<(PendingAppend, EventLine)>,
    skipped: u64,
    /// Number of submitted lines.
    submitted: u64,
    /// The last line that was appended, if later lines were not because no thread waits for
    /// acknowledgements any more.
    cut: Option<u64>,
    progress: Progress,
}

impl AppendRun<'_> {
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
                    EventLine::parse(lines.line(), &defaults, || self.store.new_id())
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
            self.progress.set(consumed.get(), || format!("{} lines", numbers::grouped(number)));
        }
    }

    /// Submits an event. Returns `false` if no thread waits for acknowledgements any more.
    fn append(&mut self, number: u64, line: EventLine) -> CommandResult<bool> {
        let events = [line.event()];
        let append =
            StreamAppend { stream: &line.stream, expected: line.expected, events: &events };
        let submitted = self.store.submit(&AppendRequest { appends: &[append], checks: &[] });
        match submitted {
            Ok(ticket) => {
                self.submitted += 1;
                Ok(self.pending_appends.send((ticket, line)).is_ok())
            }
            Err(error @ umbel_events::Error::Store(_)) => {
                Err(CommandError::from(error).with_prefix(&format!("{}, line {number}", self.name)))
            }
            Err(error) => self.report_bad_line(number, &error.to_string()),
        }
    }

    fn report_bad_line(&mut self, number: u64, reason: &str) -> CommandResult<bool> {
        let place = format!("{}, line {number}: {reason}", self.name);
        if !self.args.skip_bad {
            let appended = match self.submitted {
                0 => "no line was appended",
                _ => "the lines before it were appended",
            };
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
