//! `umbel inspect`: the levels of each keyspace, or one file of a store.

mod file;

use std::path::Path;

use umbel::{KeyspaceStats, LevelStats};

use crate::args::InspectArgs;
use crate::errors::Outcome;
use crate::limits::Limits;
use crate::number;
use crate::output::Output;
use crate::statistics;
use crate::store::Store;

/// Shows the store, or the file that was named.
pub fn run(store: Option<&Path>, args: &InspectArgs, json: bool, limits: Limits) -> Outcome<()> {
    let mut output = Output::new();
    match &args.file {
        Some(path) => file::inspect(&mut output, path, json)?,
        None => inspect_store(&mut output, &Store::named(store, limits)?, json)?,
    }
    output.flush()
}

fn inspect_store(output: &mut Output, store: &Store, json: bool) -> Outcome<()> {
    let db = store.open_to_read()?;
    let stats = db.stats();
    if json {
        return output.json(&statistics::to_json(&stats));
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
        keyspace.name,
        number::grouped(keyspace.memtable_entries),
        number::bytes(keyspace.memtable_bytes),
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
        let (files, bytes) = (number::grouped(keyspace.blobs), number::bytes(keyspace.blob_bytes));
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
        bytes => number::bytes(bytes),
    };
    format!(
        "{:>5} {:>7} {:>10} {target:>10} {:>13} {:>11} {:>10} {bits:>10.1}",
        level.level,
        number::grouped(level.tables),
        number::bytes(level.bytes),
        number::grouped(level.entries),
        number::grouped(level.deletes),
        number::bytes(level.filter_bytes)
    )
}
