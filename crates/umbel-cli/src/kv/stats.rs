//! `umbel stats`: prints the statistics of a store.

use crate::errors::CommandResult;
use crate::io::output::Output;
use crate::open_kv_store::StoreLocation;
use crate::stats_json;
use crate::text::escaping::printable_line;

/// Prints the statistics.
pub fn run(store: &StoreLocation, json: bool) -> CommandResult<()> {
    let db = store.open_read_only()?;
    let stats = db.stats();
    let mut output = Output::new();
    if json {
        output.json(&stats_json::to_json(&stats))?;
    } else {
        for line in stats.to_string().trim_end().lines() {
            output.line(&printable_line(line))?;
        }
    }
    output.flush()
}
