//! `umbel inspect`: prints the levels of each keyspace, or a summary of one file of a store.

mod file_summary;

use std::path::Path;

use umbel::{KeyspaceStats, LevelStats};

use crate::command_line::InspectArgs;
use crate::errors::CommandResult;
use crate::global_options::StoreLimits;
use crate::io::output::Output;
use crate::open_kv_store::StoreLocation;
use crate::stats_json;
use crate::text::escaping::escaped;
use crate::text::numbers;

/// Prints the levels of the store, or the summary of the named file.
pub fn run(
    store: Option<&Path>,
    args: &InspectArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let mut output = Output::new();
    match &args.file {
        Some(path) => file_summary::inspect(&mut output, path, json)?,
        None => inspect_store(&mut output, &StoreLocation::at_directory(store, limits)?, json)?,
    }
    output.flush()
}

fn inspect_store(output: &mut Output, store: &StoreLocation, json: bool) -> CommandResult<()> {
    let db = store.open_read_only()?;
    let stats = db.stats();
    if json {
        return output.json(&stats_json::to_json(&stats));
    }
    output.line(&format!("store {}", db.path().display()))?;
    for keyspace in &stats.keyspaces {
        output.line("")?;
        output.line(&keyspace_text(keyspace))?;
    }
    Ok(())
}

fn keyspace_text(keyspace: &KeyspaceStats) -> String {
    let mut text = format!(
        "keyspace `{}`: {} entries in memory ({})\n{:>5} {:>7} {:>10} {:>10} {:>13} {:>11} {:>10} \
         {:>10}",
        escaped(keyspace.name.as_bytes()),
        numbers::grouped(keyspace.memtable_entries),
        numbers::bytes(keyspace.memtable_bytes),
        "level",
        "tables",
        "size",
        "target",
        "entries",
        "deletes",
        "filters",
        "bits/entry"
    );
    if keyspace.blobs > 0 {
        let (files, bytes) =
            (numbers::grouped(keyspace.blobs), numbers::bytes(keyspace.blob_bytes));
        text = text.replacen('\n', &format!(", {files} long values ({bytes})\n"), 1);
    }
    for level in keyspace.levels.iter().filter(|level| level.tables > 0) {
        text.push('\n');
        text.push_str(&level_text(level));
    }
    text
}

fn level_text(level: &LevelStats) -> String {
    let bits = level.filter_bytes as f64 * 8.0 / level.entries.max(1) as f64;
    let target = match level.target_bytes {
        0 => "-".to_string(),
        bytes => numbers::bytes(bytes),
    };
    format!(
        "{:>5} {:>7} {:>10} {target:>10} {:>13} {:>11} {:>10} {bits:>10.1}",
        level.level,
        numbers::grouped(level.tables),
        numbers::bytes(level.bytes),
        numbers::grouped(level.entries),
        numbers::grouped(level.deletes),
        numbers::bytes(level.filter_bytes)
    )
}
