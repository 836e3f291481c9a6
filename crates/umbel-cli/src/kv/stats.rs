//! `umbel stats`: what the store did and holds.

use crate::errors::Outcome;
use crate::output::Output;
use crate::statistics;
use crate::store::Store;

/// Writes the statistics.
pub fn run(store: &Store, json: bool) -> Outcome<()> {
    let db = store.open_to_read()?;
    let stats = db.stats();
    let mut output = Output::new();
    if json {
        output.json(&statistics::to_json(&stats))?;
    } else {
        output.line(stats.to_string().trim_end())?;
    }
    output.flush()
}
