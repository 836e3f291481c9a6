//! Inputs that flushes and compactions merge: runs of tables, and memtables, which are scanned
//! forward once.

use std::sync::Arc;

use umbel_base::{Error, Result, SequenceNumber, ValueKind};
use umbel_memtable::Memtable;
use umbel_table::{SequentialReader, Table};

use crate::iter::context_cursor::ContextCursor;
use crate::iter::level_cursor::{LevelCursor, SortedRun};
use crate::iter::merging_cursor::MergingCursor;
use crate::iter::range_tombstone_runs::RangeTombstoneRuns;
use crate::super_version::memtable_cursor::DetachedMemtableCursor;
use crate::super_version::sorted_runs::first_reaching;
use crate::version::LiveTable;

/// The tables of one level that a compaction reads; for level 0 a single table.
#[derive(Debug)]
pub struct InputTables(Vec<Arc<LiveTable>>);

/// The merged inputs of a compaction.
pub type CompactionInputs = MergingCursor<LevelCursor<InputTables, SequentialReader>>;

/// The merged inputs of a flush.
pub type FlushInputs = MergingCursor<DetachedMemtableCursor>;

/// Returns a merge of `runs`, newest first. REQUIRES: each run is sorted and its tables do not
/// overlap.
pub fn of_tables(runs: Vec<Vec<Arc<LiveTable>>>) -> CompactionInputs {
    let walk = |tables| LevelCursor::over(InputTables(tables), SequentialReader::default());
    MergingCursor::new(runs.into_iter().map(walk).collect())
}

/// Returns a merge of memtables, newest first.
pub fn of_memtables<'a>(memtables: impl Iterator<Item = &'a Arc<Memtable>>) -> FlushInputs {
    let walk = |memtable: &Arc<Memtable>| DetachedMemtableCursor::new(memtable.cursor());
    MergingCursor::new(memtables.map(walk).collect())
}

/// Returns the range tombstones of memtables, fragmented and shared with readers.
pub fn tombstones_of_memtables<'a>(
    memtables: impl Iterator<Item = &'a Arc<Memtable>>,
) -> RangeTombstoneRuns {
    let mut parts = Vec::new();
    memtables.for_each(|memtable| memtable.add_fragmented_tombstones(&mut parts, true));
    let mut runs = RangeTombstoneRuns::default();
    runs.push_single(parts);
    runs
}

/// Returns the range tombstones of tables, fragmented and shared with readers. REQUIRES: `tables`
/// of one level below level 0 are adjacent and in key order.
pub fn tombstones_of_tables(tables: &[(usize, Arc<LiveTable>)]) -> Result<RangeTombstoneRuns> {
    let mut runs = RangeTombstoneRuns::default();
    let (mut first, mut before) = (0, 0);
    for (level, table) in tables {
        if *level != before {
            (first, before) = (runs.len(), *level);
        }
        if table.meta.range_tombstones > 0 {
            let part = Arc::clone(table.reader()?.tombstones());
            match level {
                0 => runs.push_single([part]),
                _ => runs.push_part(first, part),
            }
        }
    }
    Ok(runs)
}

#[cold]
fn backward_error() -> Error {
    Error::invalid("internal: the inputs of a compaction are read forwards")
}

impl SortedRun<()> for InputTables {
    type Table = Table;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn find(&self, _: &(), key: &[u8]) -> usize {
        first_reaching(&self.0, key)
    }

    fn find_before(&self, _: &(), _: &[u8]) -> Option<usize> {
        None
    }

    fn table<'a>(&'a self, _: &'a (), index: usize) -> Result<&'a Table> {
        self.0[index].reader().map(|table| &**table)
    }
}

impl ContextCursor<Table> for SequentialReader {
    fn seek_to_first(&mut self, table: &Table) -> Result<()> {
        SequentialReader::seek_to_first(self, table)
    }

    fn seek_to_last(&mut self, _: &Table) -> Result<()> {
        Err(backward_error())
    }

    fn seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        SequentialReader::seek(self, table, key, sequence)
    }

    fn seek_before(&mut self, _: &Table, _: &[u8]) -> Result<()> {
        Err(backward_error())
    }

    #[inline]
    fn next(&mut self, table: &Table) -> Result<()> {
        SequentialReader::next(self, table)
    }

    #[inline]
    fn next_repeats(&mut self, table: &Table) -> Result<bool> {
        SequentialReader::next_repeats(self, table)
    }

    fn prev(&mut self, _: &Table) -> Result<()> {
        Err(backward_error())
    }

    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        SequentialReader::try_next(self)
    }

    #[inline]
    fn valid(&self) -> bool {
        SequentialReader::valid(self)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        SequentialReader::key(self)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        SequentialReader::sequence(self)
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        SequentialReader::kind(self)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        SequentialReader::value(self)
    }
}
