//! `umbel repair`: what can be saved of a damaged event store.

use std::path::Path;

use serde_json::json;
use umbel_env::Env;
use umbel_events::{Error, RepairOptions, RepairReport};

use super::args::RepairArgs;
use crate::errors::{Failure, Outcome};
use crate::limits::Limits;
use crate::number;
use crate::output::{Output, note};
use crate::store::{refuse_file, required};

/// Named streams and ranges; the rest is counted, and stands in the report's file.
const NAMED_LINES: usize = 100;

/// Repairs the event store in the folder, or says what that would do. Fails where something is
/// lost, after everything was done.
pub fn run(folder: Option<&Path>, args: &RepairArgs, json: bool, limits: Limits) -> Outcome<()> {
    let folder = required(folder)?;
    refuse_file(folder)?;
    if folder.join("CURRENT").exists() {
        return Err(Failure::usage(format!(
            "{} holds a key-value store, and only event stores are repaired; `umbel verify` names \
             its damage; restore the store from a backup, or from a checkpoint on another disk",
            folder.display()
        )));
    }
    let options = RepairOptions {
        dry_run: args.dry_run,
        accept_unproven: args.accept_unproven,
        lock_wait: limits.lock_wait(),
    };
    let report = umbel_events::repair(&Env::system(), folder, options);
    let report = report.map_err(|error| match error {
        Error::Store(umbel::Error::Full { .. } | umbel::Error::Io { .. }) => Failure::System(
            format!("{error}; nothing is lost: once the cause is gone, run `umbel repair` again"),
        ),
        error => Failure::from(error),
    })?;
    if report.is_unlocked {
        note(
            "the folder could not be locked, as where nobody may write: this holds if nobody has \
             the store open",
        );
    }
    let mut output = Output::new();
    match json {
        true => output.json(&to_json(&report, args.dry_run))?,
        false => say(&mut output, folder, &report, args.dry_run)?,
    }
    output.flush()?;
    if !report.is_loss() {
        return Ok(());
    }
    if report.chunks.is_empty() && report.is_resumed_loss {
        return Err(Failure::Damaged(format!(
            "the repair of the event store in {} that was interrupted could not save everything; \
             {}/report.txt says what is lost",
            folder.display(),
            report.folder.as_deref().unwrap_or("damaged-1")
        )));
    }
    if report.bytes_lost() == 0 {
        let what = match (report.unplaced.is_empty(), report.is_end_unknown) {
            (false, _) => "files that may be its own fit nowhere",
            (true, true) => "nothing tells whether chunks are missing at its end",
            (true, false) => "revisions of streams are missing",
        };
        return Err(Failure::Damaged(format!(
            "of the event store in {} {what}: compare it with a backup, or with where the events \
             came from",
            folder.display()
        )));
    }
    let (is, lost) = match args.dry_run {
        true => ("cannot be read", "would be lost"),
        false => ("could not be saved", "are lost"),
    };
    Err(Failure::Damaged(format!(
        "{} of the event store in {} {is}: the events that stood there {lost}, unless a backup or \
         where they came from has them",
        number::bytes(report.bytes_lost()),
        folder.display()
    )))
}

fn say(output: &mut Output, folder: &Path, report: &RepairReport, is_dry: bool) -> Outcome<()> {
    let shown = folder.display();
    let text = report.to_string();
    let count = text.lines().count();
    for line in text.lines().take(NAMED_LINES) {
        output.line(line)?;
    }
    if let Some(more) = count.checked_sub(NAMED_LINES).filter(|more| *more > 0) {
        output.line(&format!(
            "and {} lines more; --json has all of them",
            number::grouped(more as u64)
        ))?;
    }
    let aside = report.folder.as_deref().unwrap_or("damaged-1");
    let last = match (report.is_whole(), report.is_resumed) {
        (true, _) => format!("there is nothing to repair in the event store in {shown}"),
        (_, true) if is_dry => {
            format!(
                "a repair of {shown} did not come to its end; called again, it does; its report is \
                 {aside}/report.txt"
            )
        }
        _ if is_dry => "nothing was changed".to_string(),
        (_, true) if report.chunks.is_empty() => format!(
            "brought the repair of the event store in {shown} to its end; its report is \
             {aside}/report.txt"
        ),
        _ => format!(
            "repaired the event store in {shown}; what was damaged is in {aside}, with this report"
        ),
    };
    output.line(&last)
}

fn to_json(report: &RepairReport, is_dry: bool) -> serde_json::Value {
    let chunks = report.chunks.iter().map(|chunk| {
        let lost = chunk.lost.iter().map(|range| {
            json!({
                "from": range.from.0,
                "to": range.to.0,
                "bytes": range.bytes,
                "unproven_appends": range.unproven,
            })
        });
        json!({
            "id": chunk.id,
            "reason": chunk.reason,
            "events_saved": chunk.events_saved,
            "lost": lost.collect::<Vec<_>>(),
        })
    });
    let streams = report.streams.iter().map(|lost| {
        json!({
            "stream": lost.stream,
            "first": lost.first,
            "last": lost.last,
            "certain": lost.is_certain,
        })
    });
    let unplaced = report.unplaced.iter().map(|file| {
        json!({
            "name": file.name,
            "id": file.id,
            "events": file.events,
            "from": file.from.0,
            "to": file.to.0,
        })
    });
    json!({
        "whole": report.is_whole(),
        "dry_run": is_dry,
        "resumed": report.is_resumed,
        "resumed_loss": report.is_resumed_loss,
        "unlocked": report.is_unlocked,
        "table": report.table,
        "index": report.index,
        "end_unknown": report.is_end_unknown,
        "index_through": report.index_through.map(|position| position.0),
        "bytes_lost": report.bytes_lost(),
        "chunks": chunks.collect::<Vec<_>>(),
        "streams": streams.collect::<Vec<_>>(),
        "strangers": report.strangers,
        "unplaced": unplaced.collect::<Vec<_>>(),
        "existence": report.existence,
        "folder": report.folder,
    })
}
