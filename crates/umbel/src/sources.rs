//! Where entries come from: cursors over memtables and levels, ready to be merged.

use std::ops::Bound;
use std::sync::Arc;

use umbel_base::{Cursor, FragmentedTombstones, RangeTombstone, Result, SequenceNumber};
use umbel_table::TableCursor;

use crate::iter::merge::{ConcatCursor, MergeCursor, Run};
use crate::memory::View;
use crate::version::TableFile;

/// Bounds of keys, owned.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A sorted level, or the part of one that a reader or a compaction needs.
#[derive(Debug)]
pub struct LevelRun {
    tables: Vec<Arc<TableFile>>,
    fill_cache: bool,
}

impl LevelRun {
    /// A run of tables that are sorted and do not overlap.
    pub fn new(tables: Vec<Arc<TableFile>>, fill_cache: bool) -> LevelRun {
        LevelRun { tables, fill_cache }
    }
}

impl Run for LevelRun {
    type Cursor = TableCursor;

    fn len(&self) -> usize {
        self.tables.len()
    }

    fn find(&self, key: &[u8]) -> usize {
        self.tables.partition_point(|table| !table.reaches(key))
    }

    fn find_before(&self, key: &[u8]) -> Option<usize> {
        self.tables.partition_point(|table| table.meta.smallest.as_slice() < key).checked_sub(1)
    }

    fn open(&self, index: usize) -> Result<TableCursor> {
        Ok(self.tables[index].reader()?.cursor(self.fill_cache))
    }
}

/// Whether a table may hold keys within `bounds`.
pub fn overlaps(table: &TableFile, bounds: &Bounds) -> bool {
    let from_below = match &bounds.0 {
        Bound::Unbounded => true,
        Bound::Included(key) | Bound::Excluded(key) => table.reaches(key),
    };
    let smallest = table.meta.smallest.as_slice();
    let from_above = match &bounds.1 {
        Bound::Unbounded => true,
        Bound::Included(key) => smallest <= key.as_slice(),
        Bound::Excluded(key) => smallest < key.as_slice(),
    };
    from_below && from_above
}

/// Everything a view holds within `bounds`, merged, and the range tombstones over it that count for
/// a reader at `sequence`.
pub fn merge_view(
    view: &View,
    bounds: &Bounds,
    sequence: SequenceNumber,
    fill_cache: bool,
) -> Result<(MergeCursor, Arc<FragmentedTombstones>)> {
    let mut children: Vec<Box<dyn Cursor>> = Vec::new();
    let mut tombstones: Vec<RangeTombstone> = Vec::new();
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        if buffer.memtable.has_tombstones() {
            tombstones.extend(buffer.memtable.tombstones().seen_at(sequence));
        }
        children.push(Box::new(buffer.memtable.cursor()));
    }
    for (level, tables) in view.version.levels.iter().enumerate() {
        let near: Vec<_> = tables.iter().filter(|t| overlaps(t, bounds)).cloned().collect();
        for table in near.iter().filter(|table| table.meta.range_tombstones > 0) {
            tombstones.extend(table.reader()?.tombstones().seen_at(sequence));
        }
        if level == 0 {
            for table in &near {
                children.push(Box::new(table.reader()?.cursor(fill_cache)));
            }
        } else if !near.is_empty() {
            children.push(Box::new(ConcatCursor::new(LevelRun::new(near, fill_cache))));
        }
    }
    let tombstones = Arc::new(FragmentedTombstones::new(&tombstones));
    Ok((MergeCursor::new(children), tombstones))
}
