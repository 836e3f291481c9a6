//! What the picker of compactions is told about the tables of a keyspace.

use std::sync::Arc;

use crate::compaction::pick::{self, LevelsView, PickOptions, TableFact};
use crate::keyspace_core::KeyspaceCore;
use crate::options::KeyspaceOptions;
use crate::version::{TableFile, Version};

/// The facts of a version that the picker decides by.
pub fn of<'a>(
    version: &'a Version,
    options: &KeyspaceOptions,
    cursors: &'a [Vec<u8>],
) -> LevelsView<'a> {
    let fact = |table: &'a Arc<TableFile>| TableFact {
        id: table.meta.id,
        bytes: table.meta.file_bytes,
        entries: table.meta.entries,
        deletes: table.meta.deletes + table.meta.range_tombstones,
        smallest: &table.meta.smallest,
        largest: &table.meta.largest,
        largest_is_exclusive: table.meta.largest_is_exclusive,
        sequence_min: table.meta.sequence_min,
        sequence_max: table.meta.sequence_max,
        kept_for: table.kept_for(),
        busy: table.is_busy(),
    };
    let level = |tables: &'a Vec<Arc<TableFile>>| tables.iter().map(fact).collect();
    LevelsView {
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

/// About how many bytes compactions have to move in a keyspace until all levels are within their
/// targets, those counted that running ones move.
pub fn debt_bytes(keyspace: &KeyspaceCore) -> u64 {
    let version = Arc::clone(&keyspace.view.load().version);
    let (options, cursors) = (keyspace.options(), keyspace.pick_cursors());
    pick::debt_bytes(&of(&version, &options, &cursors))
}
