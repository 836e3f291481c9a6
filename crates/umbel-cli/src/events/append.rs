//! `umbel append`: events from a file or a pipe into an event store, one line out as each is
//! acknowledged.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use umbel::Durability;
use umbel_env::Env;
use umbel_events::{Request, Store, StreamAppend, Ticket, limits};

use super::args::AppendArgs;
use super::line::{Defaults, Line};
use super::store;
use crate::errors::{Failure, Outcome};
use crate::input::{self, Counting};
use crate::limits::Limits;
use crate::lines::{Line as Piece, Lines};
use crate::number;
use crate::output::{Output, note};
use crate::progress::{Progress, Unit};

/// Appends that are not acknowledged yet, at most.
const IN_FLIGHT: usize = 1024;
/// A line takes at most so many bytes: two for each of an event, and what stands around them.
pub const LINE_BYTES_MAX: usize = 2 * limits::EVENT_BYTES_MAX + (64 << 10);
/// Damaged lines that --skip-bad names one by one.
pub const NAMED_BAD_LINES: u64 = 10;

/// Appends the events of the input.
pub fn run(folder: Option<&Path>, args: &AppendArgs, limits: Limits) -> Outcome<()> {
    let (name, input, total) = input::open(args.file.as_deref())?;
    let (input, consumed) = Counting::new(input);
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let store = store::open_or_create(folder, limits, durability)?;
    let env = Env::system();
    let (tickets, waiting) = sync_channel(IN_FLIGHT);
    let (done, printed) = sync_channel(1);
    let print = move || {
        // Nobody listens any more only where the command has failed already.
        let _ = done.send(print_acknowledged(&waiting));
    };
    let printer = env.threads.spawn("umbel-append", Box::new(print))?;
    let progress = Progress::new(&name, Unit::Bytes, total, &env.clock);
    let lines = Lines::new(input, LINE_BYTES_MAX);
    let name = name.as_str();
    let mut append = Append { name, args, store: &store, tickets, skipped: 0, cut: None, progress };
    let read = append.all(lines, &consumed);
    append.progress.finish();
    let (skipped, cut) = (append.skipped, append.cut);
    drop(append);
    printer.join();
    let printed = printed.recv().unwrap_or(Ok(()));
    // What could not be acknowledged is said before what could not be read.
    let closed = store.close();
    if let (Some(line), Err(Failure::OutputClosed)) = (cut, &printed) {
        closed?;
        return Err(Failure::System(format!(
            "{name}, line {line}: nobody reads the acknowledgements any more; what follows was not \
             appended"
        )));
    }
    printed?;
    read?;
    closed?;
    if skipped > 0 {
        note(&format!("umbel: {} damaged lines left aside", number::grouped(skipped)));
    }
    Ok(())
}

/// Waits for what was submitted, in order, and says so line by line.
fn print_acknowledged(waiting: &Receiver<(Ticket, Line)>) -> Outcome<()> {
    let mut output = Output::new();
    loop {
        let (ticket, line) = match waiting.try_recv() {
            Ok(next) => next,
            Err(_) => {
                // Whoever reads along sees what there is while nothing comes.
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
            output.line(&line.acknowledged(revision, position))?;
        }
    }
}

struct Append<'a> {
    name: &'a str,
    args: &'a AppendArgs,
    store: &'a Store,
    tickets: SyncSender<(Ticket, Line)>,
    skipped: u64,
    /// The last line that was appended, where those behind it were not, because nobody waits for
    /// acknowledgements any more.
    cut: Option<u64>,
    progress: Progress,
}

impl Append<'_> {
    fn all<R: Read>(&mut self, mut lines: Lines<R>, consumed: &Cell<u64>) -> Outcome<()> {
        let defaults = Defaults {
            stream: self.args.stream.as_deref(),
            kind: self.args.kind.as_deref(),
            expected: self.args.expected,
            has_flags: true,
        };
        loop {
            let piece = lines.next();
            let piece = piece.map_err(|e| Failure::system("read", Path::new(self.name), &e))?;
            let number = lines.count();
            let parsed = match piece {
                None => return Ok(()),
                Some(Piece::Whole) if lines.line().trim_ascii().is_empty() => continue,
                Some(Piece::Whole) => Line::parse(lines.line(), &defaults, || self.store.new_id()),
                Some(Piece::TooLong) => {
                    Err(format!("has more than {LINE_BYTES_MAX} bytes, which no event can have"))
                }
            };
            let taken = match parsed {
                Ok(line) => self.append(number, line),
                Err(reason) => self.bad(number, &reason),
            };
            if !taken? {
                self.cut = Some(number);
                return Ok(());
            }
            self.progress.set(consumed.get(), || format!("{} lines", number::grouped(number)));
        }
    }

    /// Submits an event. `false` where nobody waits for acknowledgements any more.
    fn append(&mut self, number: u64, line: Line) -> Outcome<bool> {
        let events = [line.event()];
        let append =
            StreamAppend { stream: &line.stream, expected: line.expected, events: &events };
        let submitted = self.store.submit(&Request { appends: &[append], checks: &[] });
        match submitted {
            Ok(ticket) => Ok(self.tickets.send((ticket, line)).is_ok()),
            Err(error @ umbel_events::Error::Store(_)) => {
                Err(Failure::from(error).after(&format!("{}, line {number}", self.name)))
            }
            Err(error) => self.bad(number, &error.to_string()),
        }
    }

    fn bad(&mut self, number: u64, reason: &str) -> Outcome<bool> {
        let place = format!("{}, line {number}: {reason}", self.name);
        if !self.args.skip_bad {
            return Err(Failure::usage(format!(
                "{place}; the lines before it were appended; mend the line and append the rest, or \
                 pass --skip-bad to leave such lines aside"
            )));
        }
        self.skipped += 1;
        if self.skipped <= NAMED_BAD_LINES {
            note(&format!("umbel: {place}; left aside"));
        }
        Ok(true)
    }
}
