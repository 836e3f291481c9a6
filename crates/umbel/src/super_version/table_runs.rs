//! Sorted runs of tables: levels, or parts of them, as sources of entries.

use std::ops::Bound;
use std::sync::Arc;

use umbel_base::{Result, SequenceNumber, ValueKind};
use umbel_table::{DetachedTableCursor, Table};

use crate::iter::detached_cursor::DetachedCursor;
use crate::version::TableFile;

/// Bounds of keys, owned.
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Index of the first table that may hold `key` or a later key.
pub fn first_reaching(tables: &[Arc<TableFile>], key: &[u8]) -> usize {
    tables.partition_point(|table| !table.reaches(key))
}

/// Index of the last table that may hold a key before `key`.
pub fn last_before(tables: &[Arc<TableFile>], key: &[u8]) -> Option<usize> {
    tables.partition_point(|table| table.meta.smallest.as_slice() < key).checked_sub(1)
}

impl DetachedCursor<Table> for DetachedTableCursor {
    fn seek_to_first(&mut self, table: &Table) -> Result<()> {
        DetachedTableCursor::seek_to_first(self, table)
    }

    fn seek_to_last(&mut self, table: &Table) -> Result<()> {
        DetachedTableCursor::seek_to_last(self, table)
    }

    fn seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        DetachedTableCursor::seek(self, table, key, sequence)
    }

    fn begin_seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        DetachedTableCursor::begin_seek(self, table, key, sequence);
        Ok(())
    }

    fn prefetch_seek(&mut self, table: &Table) -> Result<()> {
        DetachedTableCursor::prefetch_seek(self, table);
        Ok(())
    }

    fn narrow_seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        DetachedTableCursor::narrow_seek(self, table, key, sequence)
    }

    fn finish_seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        DetachedTableCursor::finish_seek(self, table, key, sequence)
    }

    #[inline]
    fn prefetch_entries(&self) {
        DetachedTableCursor::prefetch_entries(self);
    }

    fn seek_before(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        DetachedTableCursor::seek_before(self, table, key)
    }

    #[inline]
    fn next(&mut self, table: &Table) -> Result<()> {
        DetachedTableCursor::next(self, table)
    }

    #[inline]
    fn next_repeats(&mut self, table: &Table) -> Result<bool> {
        DetachedTableCursor::next_repeats(self, table)
    }

    #[inline]
    fn prev(&mut self, table: &Table) -> Result<()> {
        DetachedTableCursor::prev(self, table)
    }

    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        DetachedTableCursor::try_next(self)
    }

    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        DetachedTableCursor::set_limit(self, key);
    }

    #[inline]
    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        DetachedTableCursor::try_next_visible(self, sequence)
    }

    #[inline]
    fn try_prev(&mut self) -> bool {
        DetachedTableCursor::try_prev(self)
    }

    fn release(&mut self) {
        DetachedTableCursor::release(self);
    }

    #[inline]
    fn valid(&self) -> bool {
        DetachedTableCursor::valid(self)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        DetachedTableCursor::key(self)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        DetachedTableCursor::sequence(self)
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        DetachedTableCursor::kind(self)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        DetachedTableCursor::value(self)
    }
}

/// Whether a table may hold keys within `bounds`.
pub fn overlaps(table: &TableFile, bounds: &KeyBounds) -> bool {
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
