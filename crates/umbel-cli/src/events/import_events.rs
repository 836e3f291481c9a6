//! `umbel import-events`: events of another store, out of JSON lines or from its server, with the
//! ids, times and revisions they had there.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use umbel::Durability;
use umbel_env::Env;
use umbel_events::{Import, ImportReport, ImportedEvent};

use super::append::{LINE_BYTES_MAX, NAMED_BAD_LINES};
use super::args::ImportEventsArgs;
use super::line::{Defaults, Line};
use super::remote::{Class, Remote, RemoteEvent};
use super::server_address::ServerAddress;
use super::store;
use crate::errors::{Failure, Outcome};
use crate::input::{self, Counting};
use crate::limits::Limits;
use crate::lines::{Line as Piece, Lines};
use crate::number;
use crate::output::{Output, note};
use crate::progress::{Progress, Unit};

/// An import on its way.
struct Importing<'a> {
    import: Import,
    args: &'a ImportEventsArgs,
    skipped: u64,
    /// What the other server keeps for itself.
    left_out: BTreeMap<Class, u64>,
}

/// Imports events.
pub fn run(
    folder: Option<&Path>,
    args: &ImportEventsArgs,
    json: bool,
    limits: Limits,
) -> Outcome<()> {
    // What is wrong with an address is said before a store is made.
    let address =
        args.from.as_deref().map(|text| ServerAddress::parse("--from", text)).transpose()?;
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let input = match &address {
        Some(_) => None,
        None => Some(input::open(args.file.as_deref())?),
    };
    let remote = address.as_ref().map(Remote::open).transpose()?;
    let store = store::open_or_create(folder, limits, durability)?;
    let import = store.import()?;
    let mut importing = Importing { import, args, skipped: 0, left_out: BTreeMap::new() };
    let read = match (remote, input) {
        (Some(remote), _) => importing.all_of(remote),
        (None, Some((name, input, total))) => importing.lines(&name, input, total),
        (None, None) => Ok(()),
    };
    let Importing { import, skipped, left_out, .. } = importing;
    let finished = import.finish();
    let closed = store.close();
    read?;
    let report = finished?;
    closed?;
    say(&report, skipped, &left_out, json)
}

impl Importing<'_> {
    fn lines(
        &mut self,
        name: &str,
        input: Box<dyn std::io::Read>,
        total: Option<u64>,
    ) -> Outcome<()> {
        let (input, consumed) = Counting::new(input);
        let env = Env::system();
        let mut progress = Progress::new(name, Unit::Bytes, total, &env.clock);
        let mut lines = Lines::new(input, LINE_BYTES_MAX);
        let new_id = || {
            let mut bytes = [0; 16];
            env.entropy.fill(&mut bytes)?;
            Ok(umbel_events::EventId::from_random(bytes))
        };
        loop {
            let piece = lines.next();
            let piece = piece.map_err(|error| Failure::system("read", Path::new(name), &error))?;
            let number = lines.count();
            let place = || format!("{name}, line {number}");
            let taken = match piece {
                None => return Ok(()),
                Some(Piece::Whole) if lines.line().trim_ascii().is_empty() => continue,
                Some(Piece::Whole) => match Line::parse(lines.line(), &Defaults::NONE, new_id) {
                    Ok(line) => match line.imported() {
                        Ok(event) => self.add(&event, place),
                        Err(reason) => self.bad(place, &reason),
                    },
                    Err(reason) => self.bad(place, &reason),
                },
                Some(Piece::TooLong) => {
                    let reason =
                        format!("has more than {LINE_BYTES_MAX} bytes, which no event can have");
                    self.bad(place, &reason)
                }
            };
            taken?;
            progress.set(consumed.get(), || format!("{} lines", number::grouped(number)));
        }
    }

    fn all_of(&mut self, mut remote: Remote) -> Outcome<()> {
        let env = Env::system();
        let mut progress = Progress::new("import", Unit::Operations, None, &env.clock);
        let mut count = 0;
        while let Some(event) = remote.next()? {
            count += 1;
            match Class::of(&event.stream, &event.kind, self.args.system) {
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

    fn add(&mut self, event: &ImportedEvent<'_>, place: impl Fn() -> String) -> Outcome<()> {
        match self.import.add(event) {
            Ok(_) => Ok(()),
            Err(error @ umbel_events::Error::Store(_)) => Err(Failure::from(error).after(&place())),
            Err(error) => self.bad(place, &error.to_string()),
        }
    }

    fn bad(&mut self, place: impl Fn() -> String, reason: &str) -> Outcome<()> {
        let place = format!("{}: {reason}", place());
        if !self.args.skip_bad {
            return Err(Failure::usage(format!(
                "{place}; what came before it was imported, and is passed over when you run this \
                 again; mend it, or pass --skip-bad to leave such events aside"
            )));
        }
        self.skipped += 1;
        if self.skipped <= NAMED_BAD_LINES {
            note(&format!("umbel: {place}; left aside"));
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

/// Says what was done.
fn say(
    report: &ImportReport,
    skipped: u64,
    left_out: &BTreeMap<Class, u64>,
    json: bool,
) -> Outcome<()> {
    let count = |class: Class| left_out.get(&class).copied().unwrap_or(0);
    let mut output = Output::new();
    if json {
        output.json(&json!({
            "events": report.events,
            "were_there": report.were_there,
            "left_aside": skipped,
            "moved_times": report.moved_times,
            "moved_seconds_max": report.moved_most as f64 / 1e7,
            "missing_revisions": report.missing,
            "unreadable_metadata": report.unreadable_metadata,
            "links_of_views": count(Class::ViewLinks),
            "statistics": count(Class::Statistics),
            "system_events": count(Class::System),
            "position": report.position.0,
        }))?;
        return output.flush();
    }
    let mut parts = vec![format!("{} events imported", number::grouped(report.events))];
    for (count, what) in [
        (report.were_there, "were there already"),
        (skipped, "were left aside"),
        (count(Class::ViewLinks), "links of views left out, as views are made of the events here"),
        (count(Class::Statistics), "statistics of the server left out"),
        (count(Class::System), "other events of the server's own left out (--system takes them)"),
        (report.missing, "revisions between them that the source does not have"),
        (report.unreadable_metadata, "events with metadata that nobody can read"),
    ] {
        if count > 0 {
            parts.push(format!("{} {what}", number::grouped(count)));
        }
    }
    if report.moved_times > 0 {
        parts.push(format!(
            "{} times moved by up to {:.1} s, as no event may be older than the one before it",
            number::grouped(report.moved_times),
            report.moved_most as f64 / 1e7
        ));
    }
    output.line(&parts.join("; "))?;
    output.flush()
}
