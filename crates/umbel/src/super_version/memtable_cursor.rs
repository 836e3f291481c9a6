//! A memtable's cursor as a source of a merge.

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};
use umbel_memtable::MemtableCursor;

use crate::iter::walker::Walker;

/// A walk over a memtable, which it holds by itself.
pub struct MemoryWalk {
    cursor: MemtableCursor,
    /// The key left by a step.
    left: Vec<u8>,
}

impl MemoryWalk {
    /// A walk of this cursor.
    pub fn new(cursor: MemtableCursor) -> MemoryWalk {
        MemoryWalk { cursor, left: Vec::new() }
    }
}

impl<H> Walker<H> for MemoryWalk {
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
        self.left.clear();
        self.left.extend_from_slice(self.cursor.key());
        self.cursor.next()?;
        Ok(self.cursor.valid() && self.cursor.key() == self.left)
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
