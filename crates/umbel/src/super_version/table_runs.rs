//! Where entries come from: levels, or parts of them, as one sorted run of tables.

use std::ops::Bound;
use std::sync::Arc;

use umbel_base::{Result, SequenceNumber, ValueKind};
use umbel_table::{Table, TableWalk};

use crate::iter::walker::Walker;
use crate::version::TableFile;

/// Bounds of keys, owned.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The first table that may hold `key` or what follows it.
pub fn first_reaching(tables: &[Arc<TableFile>], key: &[u8]) -> usize {
    tables.partition_point(|table| !table.reaches(key))
}

/// The last table that may hold what precedes `key`.
pub fn last_before(tables: &[Arc<TableFile>], key: &[u8]) -> Option<usize> {
    tables.partition_point(|table| table.meta.smallest.as_slice() < key).checked_sub(1)
}

impl Walker<Table> for TableWalk {
    fn seek_to_first(&mut self, table: &Table) -> Result<()> {
        TableWalk::seek_to_first(self, table)
    }

    fn seek_to_last(&mut self, table: &Table) -> Result<()> {
        TableWalk::seek_to_last(self, table)
    }

    fn seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        TableWalk::seek(self, table, key, sequence)
    }

    fn aim(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        TableWalk::aim(self, table, key, sequence);
        Ok(())
    }

    fn approach(&mut self, table: &Table) -> Result<()> {
        TableWalk::approach(self, table);
        Ok(())
    }

    fn reach(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        TableWalk::reach(self, table, key, sequence)
    }

    fn seek_aimed(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        TableWalk::seek_aimed(self, table, key, sequence)
    }

    #[inline]
    fn expect(&self) {
        TableWalk::expect(self);
    }

    fn seek_before(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        TableWalk::seek_before(self, table, key)
    }

    #[inline]
    fn next(&mut self, table: &Table) -> Result<()> {
        TableWalk::next(self, table)
    }

    #[inline]
    fn next_repeats(&mut self, table: &Table) -> Result<bool> {
        TableWalk::next_repeats(self, table)
    }

    #[inline]
    fn prev(&mut self, table: &Table) -> Result<()> {
        TableWalk::prev(self, table)
    }

    #[inline]
    fn step(&mut self) -> Option<bool> {
        TableWalk::step(self)
    }

    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        TableWalk::set_limit(self, key);
    }

    #[inline]
    fn stride(&mut self, sequence: SequenceNumber) -> bool {
        TableWalk::stride(self, sequence)
    }

    #[inline]
    fn step_back(&mut self) -> bool {
        TableWalk::step_back(self)
    }

    fn release(&mut self) {
        TableWalk::release(self);
    }

    #[inline]
    fn valid(&self) -> bool {
        TableWalk::valid(self)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        TableWalk::key(self)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        TableWalk::sequence(self)
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        TableWalk::kind(self)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        TableWalk::value(self)
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
