//! A cursor over a table, for callers that read only one table.

use std::sync::Arc;

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

use crate::cursor::context_table_cursor::ContextTableCursor;
use crate::reader::table_reader::Table;

/// A cursor over a table's entries, which references the table and the current block; see
/// [`Cursor`] for its laws.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    cursor: ContextTableCursor,
}

impl Table {
    /// Creates a cursor that is not on an entry. `fill_cache` has the meaning of that in
    /// [`ContextTableCursor::new`].
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        TableCursor { table: Arc::clone(self), cursor: ContextTableCursor::new(fill_cache) }
    }
}

impl Cursor for TableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek_to_first(&self.table)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.cursor.seek_to_last(&self.table)
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.cursor.seek(&self.table, key, sequence)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek_before(&self.table, key)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next(&self.table)
    }

    #[inline]
    fn next_repeats(&mut self) -> Result<bool> {
        self.cursor.next_repeats(&self.table)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev(&self.table)
    }

    fn release(&mut self) {
        self.cursor.release();
    }

    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.cursor.sequence()
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.cursor.kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
}
