//! Hidden tables: tables of which newer range tombstones hide all entries from all readers.

use std::sync::Arc;

use umbel_base::SequenceNumber;

use crate::compaction::compaction_stream::SnapshotStripes;
use crate::iter::range_tombstone_runs::RangeTombstoneRuns;
use crate::version::LiveTable;

/// Returns the tables that `tombstones` hide. `boundaries` are those of [`SnapshotStripes::new`].
pub fn find(
    tables: &[(usize, Arc<LiveTable>)],
    tombstones: &RangeTombstoneRuns,
    boundaries: &[SequenceNumber],
) -> Vec<(usize, Arc<LiveTable>)> {
    if tombstones.is_empty() {
        return Vec::new();
    }
    let stripes = SnapshotStripes::new(boundaries.to_vec());
    // No older tombstone lies over an entry that lost its sequence number, so numbers suffice.
    let is_hidden = |(_, table): &&(usize, Arc<LiveTable>)| {
        let meta = &table.meta;
        let is_over = |id| {
            let newer = tombstones.oldest_after(id, meta.sequence_max);
            newer.is_some_and(|newer| stripes.hides(newer, meta.sequence_min))
        };
        let keys = (meta.smallest.as_slice(), meta.largest.as_slice());
        tombstones.cover(keys, meta.largest_is_exclusive, is_over)
    };
    tables.iter().filter(is_hidden).cloned().collect()
}
