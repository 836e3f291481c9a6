//! `umbel verify`: reads and checks every byte of a store.

use umbel::Env;

use crate::errors::{CommandError, CommandResult};
use crate::io::output::Output;
use crate::open_kv_store::StoreLocation;
use crate::stats_json;
use crate::text::escaping::printable_line;
use crate::text::numbers;

/// Maximum number of damages that are named; the others are only counted.
const REPORTED_DAMAGES_MAX: usize = 20;

/// Checks the store. Prints each damage with file and offset; the command then fails.
pub fn run(store: &StoreLocation, json: bool) -> CommandResult<()> {
    let clock = Env::system().clock;
    let start = clock.now();
    let db = store.open_read_only()?;
    let report = db.verify()?;
    // The open read and checked the WAL, whose entries are in the memtables.
    let log_entries = db.stats().keyspaces.iter().map(|keyspace| keyspace.memtable_entries).sum();
    let seconds = clock.now().saturating_sub(start).as_secs_f64();
    let mut output = Output::of_verdict();
    if json {
        output.json(&stats_json::verify_to_json(&report, log_entries, seconds))?;
    } else if report.damage.is_empty() {
        let logged = match log_entries {
            0 => String::new(),
            entries => format!(", and {} entries in the log", numbers::grouped(entries)),
        };
        let long = match report.blobs {
            0 => String::new(),
            blobs => format!("{} long values, ", numbers::grouped(blobs)),
        };
        output.line(&format!(
            "the store in {} is undamaged: {} tables, {} entries, {long}{} checked in {seconds:.1} \
             s{logged}",
            db.path().display(),
            numbers::grouped(report.tables),
            numbers::grouped(report.entries),
            numbers::bytes(report.bytes + report.blob_bytes),
        ))?;
    } else {
        for damage in report.damage.iter().take(REPORTED_DAMAGES_MAX) {
            output.line(&printable_line(damage))?;
        }
    }
    output.flush()?;
    if report.damage.is_empty() {
        return Ok(());
    }
    Err(CommandError::Damaged(format!(
        "the store in {} is damaged in {} of {}; restore it from a backup, or from a \
         checkpoint on another disk",
        db.path().display(),
        numbers::grouped(report.damage.len() as u64),
        numbers::counted(report.tables + report.blobs, "file")
    )))
}
