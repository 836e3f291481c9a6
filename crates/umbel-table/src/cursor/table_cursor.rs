//! A cursor over a table, for those who walk one table only.

use std::sync::Arc;

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

use crate::cursor::TableWalk;
use crate::reader::Table;

/// A cursor over a table's entries, which keeps the table and the block it stands in; see
/// [`Cursor`] for its laws.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    walk: TableWalk,
}

impl Table {
    /// A cursor, not yet on an entry. `fill_cache` as for [`TableWalk::new`].
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        TableCursor { table: Arc::clone(self), walk: TableWalk::new(fill_cache) }
    }
}

impl Cursor for TableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.walk.seek_to_first(&self.table)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.walk.seek_to_last(&self.table)
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.walk.seek(&self.table, key, sequence)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.walk.seek_before(&self.table, key)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.walk.next(&self.table)
    }

    #[inline]
    fn next_repeats(&mut self) -> Result<bool> {
        self.walk.next_repeats(&self.table)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.walk.prev(&self.table)
    }

    fn release(&mut self) {
        self.walk.release();
    }

    #[inline]
    fn valid(&self) -> bool {
        self.walk.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.walk.key()
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.walk.sequence()
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.walk.kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.walk.value()
    }
}
