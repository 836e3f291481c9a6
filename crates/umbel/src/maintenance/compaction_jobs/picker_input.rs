//! Input of the compaction picker: metadata of a keyspace's tables.

use std::sync::Arc;

use crate::compaction::picker::{self, PickOptions, PickerInput, TableInfo};
use crate::options::KeyspaceOptions;
use crate::state::keyspace_state::KeyspaceState;
use crate::version::{LiveTable, Version};

/// Builds the picker's input from a version.
pub fn build<'a>(
    version: &'a Version,
    options: &KeyspaceOptions,
    cursors: &'a [Vec<u8>],
) -> PickerInput<'a> {
    let fact = |table: &'a Arc<LiveTable>| TableInfo {
        id: table.meta.id,
        bytes: table.meta.file_bytes,
        entries: table.meta.entries,
        deletes: table.meta.deletes + table.meta.range_tombstones,
        smallest: &table.meta.smallest,
        largest: &table.meta.largest,
        largest_is_exclusive: table.meta.largest_is_exclusive,
        sequence_min: table.meta.sequence_min,
        sequence_max: table.meta.sequence_max,
        retained_for: table.retained_for(),
        busy: table.is_busy(),
    };
    let level = |tables: &'a Vec<Arc<LiveTable>>| tables.iter().map(fact).collect();
    PickerInput {
        levels: version.levels.iter().map(level).collect(),
        options: pick_options(options),
        cursors: cursors.iter().map(Vec::as_slice).collect(),
    }
}

fn pick_options(options: &KeyspaceOptions) -> PickOptions {
    PickOptions {
        level0_tables: options.level0_tables,
        level_bytes_base: options.base_bytes(),
        level_ratio: options.level_ratio,
        table_bytes: options.table_bytes,
    }
}

/// Approximate bytes that compactions, running ones included, have to move in a keyspace until all
/// levels are within their targets.
pub fn debt_bytes(keyspace: &KeyspaceState) -> u64 {
    let version = Arc::clone(&keyspace.super_version.load().version);
    let (options, cursors) = (keyspace.options(), keyspace.pick_cursors());
    picker::debt_bytes(&build(&version, &options, &cursors))
}
