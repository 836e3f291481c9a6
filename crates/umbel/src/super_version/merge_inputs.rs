//! What flushes and compactions merge: runs of tables and memtables, each walked forwards once.

use std::sync::Arc;

use umbel_base::{Error, Result, SequenceNumber, ValueKind};
use umbel_memtable::Memtable;
use umbel_table::{Table, TableRun};

use crate::iter::concat::{ConcatCursor, Run};
use crate::iter::merge::MergeCursor;
use crate::iter::walker::Walker;
use crate::memory_walk::MemoryWalk;
use crate::sources::first_reaching;
use crate::version::TableFile;

/// The tables of one level that a compaction reads; of level 0 a single one.
#[derive(Debug)]
pub struct InputTables(Vec<Arc<TableFile>>);

/// The inputs of a compaction as one.
pub type CompactionInputs = MergeCursor<ConcatCursor<InputTables, TableRun>>;

/// The inputs of a flush as one.
pub type FlushInputs = MergeCursor<MemoryWalk>;

/// A merge of `runs`, newest first, each sorted and without overlap.
pub fn of_tables(runs: Vec<Vec<Arc<TableFile>>>) -> CompactionInputs {
    let walk = |tables| ConcatCursor::over(InputTables(tables), TableRun::default());
    MergeCursor::new(runs.into_iter().map(walk).collect())
}

/// A merge of memtables, newest first.
pub fn of_memtables<'a>(memtables: impl Iterator<Item = &'a Arc<Memtable>>) -> FlushInputs {
    let walk = |memtable: &Arc<Memtable>| MemoryWalk::new(memtable.cursor());
    MergeCursor::new(memtables.map(walk).collect())
}

#[cold]
fn forwards_only() -> Error {
    Error::invalid("internal: the inputs of a compaction are read forwards")
}

impl Run<()> for InputTables {
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

impl Walker<Table> for TableRun {
    fn seek_to_first(&mut self, table: &Table) -> Result<()> {
        TableRun::seek_to_first(self, table)
    }

    fn seek_to_last(&mut self, _: &Table) -> Result<()> {
        Err(forwards_only())
    }

    fn seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        TableRun::seek(self, table, key, sequence)
    }

    fn seek_before(&mut self, _: &Table, _: &[u8]) -> Result<()> {
        Err(forwards_only())
    }

    #[inline]
    fn next(&mut self, table: &Table) -> Result<()> {
        TableRun::next(self, table)
    }

    #[inline]
    fn next_repeats(&mut self, table: &Table) -> Result<bool> {
        TableRun::next_repeats(self, table)
    }

    fn prev(&mut self, _: &Table) -> Result<()> {
        Err(forwards_only())
    }

    #[inline]
    fn step(&mut self) -> Option<bool> {
        TableRun::step(self)
    }

    #[inline]
    fn valid(&self) -> bool {
        TableRun::valid(self)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        TableRun::key(self)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        TableRun::sequence(self)
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        TableRun::kind(self)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        TableRun::value(self)
    }
}
