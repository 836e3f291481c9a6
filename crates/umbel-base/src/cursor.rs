//! The internal cursor, which reads memtables, tables and merges of both.

use crate::{Result, SequenceNumber, ValueKind};

/// A cursor over entries in internal order (see [`crate::cmp_internal`]): every version of every
/// key, tombstones included.
///
/// Laws, which every implementation keeps:
/// 1. After a `seek*`, `next` or `prev` the cursor is valid, on an entry, unless it passed the end
///    in the direction of the movement. A new cursor is not valid.
/// 2. `next` and `prev` REQUIRE a valid cursor. `next` after `prev`, and `prev` after `next`,
///    return to the entry before the two calls.
/// 3. After an error the cursor is not valid until the next `seek*`.
/// 4. The slices of `key` and `value` are valid until the cursor moves or is dropped.
pub trait Cursor: Send {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after (`key`, `sequence`) in internal order. This is the
    /// newest version of `key` not newer than `sequence`, or else the first entry of the next
    /// greater key.
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()>;
    /// Moves to the last entry whose key is strictly less than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the next entry. REQUIRES: `valid()`.
    fn next(&mut self) -> Result<()>;
    /// Moves like [`Cursor::next`], and returns whether the new entry is an older version of the
    /// same key; `false` at the end. REQUIRES: `valid()`.
    fn next_repeats(&mut self) -> Result<bool> {
        let left = self.key().to_vec();
        self.next()?;
        Ok(self.valid() && self.key() == left)
    }
    /// Moves like `next_repeats` and returns the same result, if that is fast and cannot fail.
    /// Otherwise returns `None` and does not move. REQUIRES: `valid()`.
    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        None
    }
    /// Moves like `next` if a fast check finds that the next entry is the newest version of its
    /// key, a put and not newer than `sequence`. Otherwise returns `false` and does not move.
    /// REQUIRES: `valid()`.
    #[inline]
    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        let _ = sequence;
        false
    }
    /// Moves to the previous entry. REQUIRES: `valid()`.
    fn prev(&mut self) -> Result<()>;
    /// Number of entries that the cursor passed over because another source has the same entry.
    fn skipped_copies(&self) -> u64 {
        0
    }
    /// Releases the memory that the cursor holds of its source, if any. REQUIRES: the next call is
    /// a seek.
    fn release(&mut self) {}
    /// Whether the cursor is on an entry.
    fn valid(&self) -> bool;
    /// Key of the current entry. REQUIRES: `valid()`.
    fn key(&self) -> &[u8];
    /// Sequence number of the current entry. REQUIRES: `valid()`.
    fn sequence(&self) -> SequenceNumber;
    /// Kind of the current entry. REQUIRES: `valid()`.
    fn kind(&self) -> ValueKind;
    /// Value of the current entry; empty for a delete. REQUIRES: `valid()`.
    fn value(&self) -> &[u8];
}
