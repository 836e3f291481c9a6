//! `umbel repair`: saves what can be read of a damaged event store.

use std::path::Path;

use serde_json::json;
use umbel_env::Env;
use umbel_events::{Error, RepairOptions, RepairReport};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::shell_command::store_command;
use crate::events::event_args::RepairArgs;
use crate::global_options::StoreLimits;
use crate::io::output::{Output, note};
use crate::open_kv_store::{refuse_file, require_directory};
use crate::text::escaping::printable_line;
use crate::text::numbers;

/// Maximum number of report lines that are printed; the report file has all lines.
const REPORTED_LINES_MAX: usize = 100;

/// Repairs the event store in the directory, or reports what a repair would do. Returns an error if
/// events are lost, after the repair is complete.
pub fn run(
    directory: Option<&Path>,
    args: &RepairArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let directory = require_directory(directory)?;
    refuse_file(directory)?;
    if directory.join("CURRENT").exists() {
        return Err(CommandError::usage(format!(
            "{} holds a key-value store, and only event stores are repaired; `{}` names its \
             damage; restore the store from a backup, or from a checkpoint on another disk",
            directory.display(),
            store_command(&["verify"], directory)
        )));
    }
    let options = RepairOptions {
        dry_run: args.dry_run,
        accept_unproven: args.accept_unproven,
        lock_wait: limits.lock_wait(),
    };
    let report = umbel_events::repair(&Env::system(), directory, options);
    let report = report.map_err(|error| match error {
        Error::Store(umbel::Error::DiskFull { .. } | umbel::Error::Io { .. }) => {
            CommandError::System(format!(
                "{error}; nothing is lost: remove the cause and run `{}` again",
                store_command(&["repair"], directory)
            ))
        }
        error => CommandError::from(error),
    })?;
    if report.is_unlocked {
        note(
            "the store could not be locked, because its directory is read-only: the report is \
             valid only if no process has the store open",
        );
    }
    let mut output = match args.dry_run {
        true => Output::of_verdict(),
        false => Output::of_verdict().after("the repair is complete"),
    };
    match json {
        true => output.json(&to_json(&report, args.dry_run))?,
        false => print_report(&mut output, directory, &report, args.dry_run)?,
    }
    output.flush()?;
    match report.has_loss() {
        true => Err(loss_error(directory, &report, args.dry_run)),
        false => Ok(()),
    }
}

/// Returns the error that names what a repair could not salvage.
fn loss_error(directory: &Path, report: &RepairReport, is_dry: bool) -> CommandError {
    if report.chunks.is_empty() && report.is_resumed_loss {
        return CommandError::Damaged(format!(
            "the repair of the event store in {} that was interrupted could not save everything; \
             {}/report.txt says what is lost",
            directory.display(),
            report.folder.as_deref().unwrap_or("damaged-1")
        ));
    }
    if report.bytes_lost() == 0 {
        let what = match (report.unplaced.is_empty(), report.is_end_unknown) {
            (false, _) => "there are chunk files without a known position",
            (true, true) => "it is unknown whether chunks are missing at the end of the event log",
            (true, false) => "revisions of streams are missing",
        };
        return CommandError::Damaged(format!(
            "event store in {}: {what}; compare it with a backup or with the source of the events",
            directory.display()
        ));
    }
    let (is, lost) = match is_dry {
        true => ("cannot be read", "would be lost"),
        false => ("could not be saved", "are lost"),
    };
    CommandError::Damaged(format!(
        "{} of the event store in {} {is}: their events {lost}, unless a backup or the source of \
         the events has them",
        numbers::bytes(report.bytes_lost()),
        directory.display()
    ))
}

fn print_report(
    output: &mut Output,
    directory: &Path,
    report: &RepairReport,
    is_dry: bool,
) -> CommandResult<()> {
    let shown = directory.display();
    let text = report.to_string();
    let count = text.lines().count();
    for line in text.lines().take(REPORTED_LINES_MAX) {
        output.line(&printable_line(line))?;
    }
    if let Some(more) = count.checked_sub(REPORTED_LINES_MAX).filter(|more| *more > 0) {
        output.line(&format!(
            "and {} more lines; --json prints all lines",
            numbers::grouped(more as u64)
        ))?;
    }
    let aside = report.folder.as_deref().unwrap_or("damaged-1");
    let last = match (report.is_undamaged(), report.is_resumed) {
        (true, _) => format!("there is nothing to repair in the event store in {shown}"),
        (_, true) if is_dry => {
            format!(
                "a repair of {shown} was interrupted; run `{}` again to finish it; its report is \
                 {aside}/report.txt",
                store_command(&["repair"], directory)
            )
        }
        _ if is_dry => "nothing was changed".to_string(),
        (_, true) if report.chunks.is_empty() => format!(
            "finished the interrupted repair of the event store in {shown}; its report is \
             {aside}/report.txt"
        ),
        _ => format!(
            "repaired the event store in {shown}; the damaged files and this report are in {aside}"
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
        "whole": report.is_undamaged(),
        "dry_run": is_dry,
        "resumed": report.is_resumed,
        "resumed_loss": report.is_resumed_loss,
        "unlocked": report.is_unlocked,
        "table": report.manifest,
        "index": report.index,
        "end_unknown": report.is_end_unknown,
        "index_through": report.index_through.map(|position| position.0),
        "bytes_lost": report.bytes_lost(),
        "chunks": chunks.collect::<Vec<_>>(),
        "streams": streams.collect::<Vec<_>>(),
        "strangers": report.unrelated_files,
        "unplaced": unplaced.collect::<Vec<_>>(),
        "existence": report.existence,
        "folder": report.folder,
    })
}
