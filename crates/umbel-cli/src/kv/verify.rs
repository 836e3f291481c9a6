//! `umbel verify`: every byte read and checked.

use umbel::Env;

use crate::errors::{Failure, Outcome};
use crate::number;
use crate::output::Output;
use crate::statistics;
use crate::store::Store;

/// Named damages; the rest is counted.
const NAMED_DAMAGES: usize = 20;

/// Checks the store. Each damage is said with file and offset, then the command fails.
pub fn run(store: &Store, json: bool) -> Outcome<()> {
    let clock = Env::system().clock;
    let start = clock.now();
    let db = store.open_to_read()?;
    let report = db.verify()?;
    // Opening read the logs, checked them and holds what is in them.
    let log_entries = db.stats().keyspaces.iter().map(|keyspace| keyspace.memtable_entries).sum();
    let seconds = clock.now().saturating_sub(start).as_secs_f64();
    let mut output = Output::new();
    if json {
        output.json(&statistics::verify_to_json(&report, log_entries, seconds))?;
    } else if report.damage.is_empty() {
        let logged = match log_entries {
            0 => String::new(),
            entries => format!(", and {} entries in the log", number::grouped(entries)),
        };
        let long = match report.blobs {
            0 => String::new(),
            blobs => format!("{} long values, ", number::grouped(blobs)),
        };
        output.line(&format!(
            "the store in {} is whole: {} tables, {} entries, {long}{} checked in {seconds:.1} \
             s{logged}",
            db.path().display(),
            number::grouped(report.tables),
            number::grouped(report.entries),
            number::bytes(report.bytes + report.blob_bytes),
        ))?;
    } else {
        for damage in report.damage.iter().take(NAMED_DAMAGES) {
            output.line(damage)?;
        }
    }
    output.flush()?;
    if report.damage.is_empty() {
        return Ok(());
    }
    Err(Failure::Damaged(format!(
        "the store in {} is damaged in {} of {} files; restore it from a backup, or from a \
         checkpoint on another disk",
        db.path().display(),
        number::grouped(report.damage.len() as u64),
        number::grouped(report.tables + report.blobs)
    )))
}
