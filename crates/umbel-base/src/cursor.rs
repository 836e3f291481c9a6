//! The internal cursor: how memtables, tables and merges of them are walked.

use crate::{Result, SequenceNumber, ValueKind};

/// A cursor over entries in internal order (see [`crate::cmp_internal`]): every version of every
/// key, tombstones included.
///
/// Laws, which every implementation keeps:
/// 1. After a `seek*`, `next` or `prev` the cursor is either valid and stands on an entry, or not
///    valid, which means the end was passed in that direction. A fresh cursor is not valid.
/// 2. `next` and `prev` REQUIRE a valid cursor. `next` after `prev` (and the reverse) returns to
///    the entry left.
/// 3. After an error the cursor is not valid, and stays so until the next `seek*`.
/// 4. What `key` and `value` lend stays good until the cursor moves or is dropped.
pub trait Cursor: Send {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or behind (`key`, `sequence`) in internal order: to the newest
    /// version of `key` not newer than `sequence`, or else to the next greater key.
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()>;
    /// Moves to the last entry whose key is strictly less than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the next entry. REQUIRES: `valid()`.
    fn next(&mut self) -> Result<()>;
    /// As [`Cursor::next`]; says whether the entry reached has the key of the one left, of which it
    /// is then an older version. `false` where the end was passed. REQUIRES: `valid()`.
    fn next_repeats(&mut self) -> Result<bool> {
        let left = self.key().to_vec();
        self.next()?;
        Ok(self.valid() && self.key() == left)
    }
    /// Moves as `next_repeats` where that is quick and cannot fail, and answers the same. `None`,
    /// and nothing changed, elsewhere. REQUIRES: `valid()`.
    #[inline]
    fn step(&mut self) -> Option<bool> {
        None
    }
    /// Moves as `next` where the entry reached is the newest of its key, a put, and not newer than
    /// `sequence`, and finding that out is quick and cannot fail. `false`, and nothing changed,
    /// elsewhere. REQUIRES: `valid()`.
    #[inline]
    fn stride(&mut self, sequence: SequenceNumber) -> bool {
        let _ = sequence;
        false
    }
    /// Moves to the previous entry. REQUIRES: `valid()`.
    fn prev(&mut self) -> Result<()>;
    /// Releases the memory that it holds of what it walks over, if any. The next call is a seek.
    fn release(&mut self) {}
    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// The key. REQUIRES: `valid()`.
    fn key(&self) -> &[u8];
    /// The sequence number. REQUIRES: `valid()`.
    fn sequence(&self) -> SequenceNumber;
    /// The kind. REQUIRES: `valid()`.
    fn kind(&self) -> ValueKind;
    /// The value; empty for a delete. REQUIRES: `valid()`.
    fn value(&self) -> &[u8];
}
