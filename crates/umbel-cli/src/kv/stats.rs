//! `umbel stats`: prints the statistics of a store.

use crate::errors::CommandResult;
use crate::io::output::Output;
use crate::open_kv_store::StoreLocation;
use crate::stats_json;

/// Prints the statistics.
pub fn run(store: &StoreLocation, json: bool) -> CommandResult<()> {
    let db = store.open_read_only()?;
    let stats = db.stats();
    let mut output = Output::new();
    if json {
        output.json(&stats_json::to_json(&stats))?;
    } else {
        output.line(stats.to_string().trim_end())?;
    }
    output.flush()
}
