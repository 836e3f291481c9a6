//! Sorted runs of tables: levels, or parts of them, as sources of entries.

use std::ops::Bound;
use std::sync::Arc;

use umbel_base::{Result, SequenceNumber, ValueKind};
use umbel_table::{ContextTableCursor, Table};

use crate::iter::context_cursor::ContextCursor;
use crate::version::LiveTable;

/// Owned lower and upper bound of keys.
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns the index of the first table that can hold `key` or a later key.
pub fn first_reaching(tables: &[Arc<LiveTable>], key: &[u8]) -> usize {
    tables.partition_point(|table| !table.reaches(key))
}

/// Returns the index of the last table that can hold a key before `key`.
pub fn last_before(tables: &[Arc<LiveTable>], key: &[u8]) -> Option<usize> {
    tables.partition_point(|table| table.meta.smallest.as_slice() < key).checked_sub(1)
}

impl ContextCursor<Table> for ContextTableCursor {
    fn seek_to_first(&mut self, table: &Table) -> Result<()> {
        ContextTableCursor::seek_to_first(self, table)
    }

    fn seek_to_last(&mut self, table: &Table) -> Result<()> {
        ContextTableCursor::seek_to_last(self, table)
    }

    fn seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        ContextTableCursor::seek(self, table, key, sequence)
    }

    fn begin_seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        ContextTableCursor::begin_seek(self, table, key, sequence);
        Ok(())
    }

    fn prefetch_seek(&mut self, table: &Table) -> Result<()> {
        ContextTableCursor::prefetch_seek(self, table);
        Ok(())
    }

    fn narrow_seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        ContextTableCursor::narrow_seek(self, table, key, sequence)
    }

    fn finish_seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        ContextTableCursor::finish_seek(self, table, key, sequence)
    }

    #[inline]
    fn prefetch_entries(&self) {
        ContextTableCursor::prefetch_entries(self);
    }

    fn seek_before(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        ContextTableCursor::seek_before(self, table, key)
    }

    #[inline]
    fn next(&mut self, table: &Table) -> Result<()> {
        ContextTableCursor::next(self, table)
    }

    #[inline]
    fn next_repeats(&mut self, table: &Table) -> Result<bool> {
        ContextTableCursor::next_repeats(self, table)
    }

    #[inline]
    fn prev(&mut self, table: &Table) -> Result<()> {
        ContextTableCursor::prev(self, table)
    }

    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        ContextTableCursor::try_next(self)
    }

    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        ContextTableCursor::set_limit(self, key);
    }

    #[inline]
    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        ContextTableCursor::try_next_visible(self, sequence)
    }

    #[inline]
    fn try_prev(&mut self) -> bool {
        ContextTableCursor::try_prev(self)
    }

    fn release(&mut self) {
        ContextTableCursor::release(self);
    }

    #[inline]
    fn valid(&self) -> bool {
        ContextTableCursor::valid(self)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        ContextTableCursor::key(self)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        ContextTableCursor::sequence(self)
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        ContextTableCursor::kind(self)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        ContextTableCursor::value(self)
    }
}

/// Whether a table can hold keys between the bounds `lower` and `upper`.
pub fn overlaps(table: &LiveTable, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    let from_below = match lower {
        Bound::Unbounded => true,
        Bound::Included(key) | Bound::Excluded(key) => table.reaches(key),
    };
    let smallest = table.meta.smallest.as_slice();
    let from_above = match upper {
        Bound::Unbounded => true,
        Bound::Included(key) => smallest <= key.as_slice(),
        Bound::Excluded(key) => smallest < key.as_slice(),
    };
    from_below && from_above
}
