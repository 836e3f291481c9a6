//! `umbel import-events`: imports events of another store, from JSON lines or from its server, with
//! their ids, times and revisions.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use umbel::Durability;
use umbel_env::Env;
use umbel_events::{Import, ImportReport, ImportedEvent};

use super::append::{LINE_BYTES_MAX, REPORTED_BAD_LINES_MAX};
use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_source::{GrpcSource, InternalEventKind, RemoteEvent};
use crate::events::event_args::ImportEventsArgs;
use crate::events::event_json::{EventLine, LineDefaults};
use crate::events::open_event_store;
use crate::global_options::StoreLimits;
use crate::io::input::{self, CountingReader};
use crate::io::line_reader::{LineReader, ReadLine as Piece};
use crate::io::output::{Output, note};
use crate::io::progress::{Progress, Unit};
use crate::text::numbers;

/// Running import.
struct EventImport<'a> {
    import: Import,
    args: &'a ImportEventsArgs,
    skipped: u64,
    /// Number of skipped internal events of the other server.
    left_out: BTreeMap<InternalEventKind, u64>,
}

/// Imports events.
pub fn run(
    directory: Option<&Path>,
    args: &ImportEventsArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    // An invalid address is reported before the store is created.
    let address =
        args.from.as_deref().map(|text| ConnectionString::parse("--from", text)).transpose()?;
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let input = match &address {
        Some(_) => None,
        None => Some(input::open(args.file.as_deref())?),
    };
    let remote = address.as_ref().map(GrpcSource::open).transpose()?;
    let store = open_event_store::open_or_create(directory, limits, durability)?;
    let import = store.import()?;
    let mut importing = EventImport { import, args, skipped: 0, left_out: BTreeMap::new() };
    let read = match (remote, input) {
        (Some(remote), _) => importing.import_source(remote),
        (None, Some((name, input, total))) => importing.import_lines(&name, input, total),
        (None, None) => Ok(()),
    };
    let EventImport { import, skipped, left_out, .. } = importing;
    let finished = import.finish();
    let closed = store.close();
    read?;
    let report = finished?;
    closed?;
    print_summary(&report, skipped, &left_out, json)
}

impl EventImport<'_> {
    fn import_lines(
        &mut self,
        name: &str,
        input: Box<dyn std::io::Read>,
        total: Option<u64>,
    ) -> CommandResult<()> {
        let (input, consumed) = CountingReader::new(input);
        let env = Env::system();
        let mut progress = Progress::new(name, Unit::Bytes, total, &env.clock);
        let mut lines = LineReader::new(input, LINE_BYTES_MAX);
        let new_id = || {
            let mut bytes = [0; 16];
            env.entropy.fill(&mut bytes)?;
            Ok(umbel_events::EventId::from_random(bytes))
        };
        loop {
            let piece = lines.next();
            let piece =
                piece.map_err(|error| CommandError::system("read", Path::new(name), &error))?;
            let number = lines.count();
            let place = || format!("{name}, line {number}");
            let accepted = match piece {
                None => return Ok(()),
                Some(Piece::Whole) if lines.line().trim_ascii().is_empty() => continue,
                Some(Piece::Whole) => {
                    match EventLine::parse(lines.line(), &LineDefaults::NONE, new_id) {
                        Ok(line) => match line.imported() {
                            Ok(event) => self.add(&event, place),
                            Err(reason) => self.report_bad_event(place, &reason),
                        },
                        Err(reason) => self.report_bad_event(place, &reason),
                    }
                }
                Some(Piece::TooLong) => {
                    let reason =
                        format!("has more than {LINE_BYTES_MAX} bytes, the limit of an event line");
                    self.report_bad_event(place, &reason)
                }
            };
            accepted?;
            progress.set(consumed.get(), || numbers::counted(number, "line"));
        }
    }

    fn import_source(&mut self, mut remote: GrpcSource) -> CommandResult<()> {
        let env = Env::system();
        let mut progress = Progress::new("import", Unit::Operations, None, &env.clock);
        let mut count = 0;
        while let Some(event) = remote.next()? {
            count += 1;
            match InternalEventKind::classify(&event.stream, &event.kind, self.args.system) {
                Some(class) => *self.left_out.entry(class).or_default() += 1,
                None => {
                    let place = || {
                        let name = event.stream.escape_debug();
                        format!("{}, event {} of stream '{name}'", remote.name(), event.revision)
                    };
                    self.add(&event.imported(), place)?;
                }
            }
            progress.set(count, String::new);
        }
        Ok(())
    }

    fn add(&mut self, event: &ImportedEvent<'_>, place: impl Fn() -> String) -> CommandResult<()> {
        match self.import.add(event) {
            Ok(_) => Ok(()),
            Err(error @ umbel_events::Error::Store(_)) => {
                Err(CommandError::from(error).with_prefix(&place()))
            }
            Err(error) => self.report_bad_event(place, &error.to_string()),
        }
    }

    fn report_bad_event(&mut self, place: impl Fn() -> String, reason: &str) -> CommandResult<()> {
        let place = format!("{}: {reason}", place());
        if !self.args.skip_bad {
            return Err(CommandError::usage(format!(
                "{place}; the events before it were imported; correct the event and run the \
                 import again, which skips imported events, or skip bad events with --skip-bad"
            )));
        }
        self.skipped += 1;
        if self.skipped <= REPORTED_BAD_LINES_MAX {
            note(&format!("umbel: {place}; skipped"));
        }
        Ok(())
    }
}

impl RemoteEvent {
    fn imported(&self) -> ImportedEvent<'_> {
        let event = umbel_events::NewEvent {
            id: self.id,
            kind: &self.kind,
            is_json: self.is_json,
            data: &self.data,
            metadata: &self.metadata,
        };
        let (revision, created) = (Some(self.revision), self.created);
        ImportedEvent { stream: &self.stream, revision, created, event }
    }
}

/// Prints the counts of the import.
fn print_summary(
    report: &ImportReport,
    skipped: u64,
    left_out: &BTreeMap<InternalEventKind, u64>,
    json: bool,
) -> CommandResult<()> {
    let count = |class: InternalEventKind| left_out.get(&class).copied().unwrap_or(0);
    let mut output = Output::new().after("the import is complete");
    if json {
        output.json(&json!({
            "events": report.events,
            "were_there": report.duplicates,
            "left_aside": skipped,
            "moved_times": report.adjusted_times,
            "moved_seconds_max": report.largest_adjustment as f64 / 1e7,
            "missing_revisions": report.missing_revisions,
            "unreadable_metadata": report.unreadable_metadata,
            "links_of_views": count(InternalEventKind::ViewLinks),
            "statistics": count(InternalEventKind::Statistics),
            "system_events": count(InternalEventKind::System),
            "position": report.position.0,
        }))?;
        return output.flush();
    }
    let mut parts = vec![format!("{} imported", numbers::counted(report.events, "event"))];
    for (count, what) in [
        (report.duplicates, "skipped as already present"),
        (skipped, "invalid events skipped"),
        (
            count(InternalEventKind::ViewLinks),
            "links of views skipped, because views are derived from the events",
        ),
        (count(InternalEventKind::Statistics), "statistics events of the server skipped"),
        (count(InternalEventKind::System), "other system events skipped (--system imports them)"),
        (report.missing_revisions, "revisions missing in the source"),
        (report.unreadable_metadata, "events with invalid metadata"),
    ] {
        if count > 0 {
            parts.push(format!("{} {what}", numbers::grouped(count)));
        }
    }
    if report.adjusted_times > 0 {
        parts.push(format!(
            "{} times moved by up to {:.1} s, to keep the times of events in order",
            numbers::grouped(report.adjusted_times),
            report.largest_adjustment as f64 / 1e7
        ));
    }
    output.line(&parts.join("; "))?;
    output.flush()
}
