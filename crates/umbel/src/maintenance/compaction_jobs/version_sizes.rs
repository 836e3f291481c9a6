//! Sizes of a version that bound its garbage.

use std::sync::{Arc, Weak};

use crate::maintenance::compaction_jobs::hidden_entries_estimator::{
    size_of, tables_above_last_level,
};
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::{GarbageEstimate, GarbageState, VersionSizes};
use crate::version::{LiveTable, Version};

/// Returns the sizes of a version, which are computed once.
pub fn known_sizes(
    keyspace: &KeyspaceState,
    version: &Arc<Version>,
    garbage: &mut GarbageState,
) -> VersionSizes {
    let known = garbage.keyspaces.entry(keyspace.id).or_default();
    let content = version.content();
    if !Weak::ptr_eq(&known.content, &content) {
        known.content = content;
        known.sizes = sizes_of(version);
    }
    known.sizes
}

fn sizes_of(version: &Version) -> VersionSizes {
    let mut all = GarbageEstimate::default();
    for (_, table) in version.tables() {
        all.add(size_of(table));
    }
    let entry_bytes_max = version.tables().map(|(_, table)| entry_bytes(table)).max().unwrap_or(0);
    let garbage_max = garbage_max(version, entry_bytes_max);
    VersionSizes { all, file_bytes: version.file_bytes(), garbage_max, entry_bytes_max }
}

/// Average bytes of an entry of a table, its long value included.
fn entry_bytes(table: &LiveTable) -> u64 {
    size_of(table).bytes / table.meta.entries.max(1)
}

/// Upper bound of the garbage, from the tables' metadata. It is unlimited with range tombstones,
/// since the metadata does not say how many entries they hide.
fn garbage_max(version: &Version, entry_bytes_max: u64) -> GarbageEstimate {
    let mut sum = GarbageEstimate::default();
    for (_, table) in tables_above_last_level(version) {
        if table.meta.range_tombstones > 0 {
            return GarbageEstimate::MAX;
        }
        sum.add(GarbageEstimate {
            entries: table.meta.entries + table.meta.deletes,
            bytes: table.meta.entries.saturating_mul(entry_bytes_max),
        });
    }
    sum
}
