//! A memtable's cursor as a source of a merge.

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};
use umbel_memtable::MemtableCursor;

use crate::iter::context_cursor::ContextCursor;

/// A cursor over a memtable that keeps the memtable alive.
pub struct DetachedMemtableCursor {
    cursor: MemtableCursor,
    /// The key on which the cursor was before its last step.
    previous_key: Vec<u8>,
}

impl DetachedMemtableCursor {
    /// Wraps `cursor`.
    pub fn new(cursor: MemtableCursor) -> DetachedMemtableCursor {
        DetachedMemtableCursor { cursor, previous_key: Vec::new() }
    }
}

impl<H> ContextCursor<H> for DetachedMemtableCursor {
    fn seek_to_first(&mut self, _: &H) -> Result<()> {
        self.cursor.seek_to_first()
    }

    fn seek_to_last(&mut self, _: &H) -> Result<()> {
        self.cursor.seek_to_last()
    }

    fn seek(&mut self, _: &H, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.cursor.seek(key, sequence)
    }

    fn seek_before(&mut self, _: &H, key: &[u8]) -> Result<()> {
        self.cursor.seek_before(key)
    }

    #[inline]
    fn next(&mut self, _: &H) -> Result<()> {
        self.cursor.next()
    }

    #[inline]
    fn next_repeats(&mut self, _: &H) -> Result<bool> {
        self.previous_key.clear();
        self.previous_key.extend_from_slice(self.cursor.key());
        self.cursor.next()?;
        Ok(self.cursor.valid() && self.cursor.key() == self.previous_key)
    }

    #[inline]
    fn prev(&mut self, _: &H) -> Result<()> {
        self.cursor.prev()
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
