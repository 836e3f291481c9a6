//! [`CursorMemory`]: what open cursors and iterators hold in memory, and when it is too much.
//!
//! A cursor stands in one block of each source. The block stays in memory for as long as it stands
//! there, in the cache or not: a thousand iterators at different keys of four sources keep four
//! thousand blocks. These count within the budget, and the cache yields to them. Where they and the
//! cursors themselves take more than their share, cursors park: each keeps a copy of its entry,
//! releases its blocks, and seeks when it is moved.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that cursors hold, and whether they are to park.
#[derive(Debug)]
pub struct CursorMemory {
    /// Bytes of the cursors themselves, with the entries that parked ones keep.
    own: AtomicU64,
    /// Bytes of blocks that are in memory only because a cursor stands in them.
    blocks: AtomicU64,
    most: AtomicU64,
    is_tight: AtomicBool,
}

impl Default for CursorMemory {
    /// Cursors that may hold as much as they like.
    fn default() -> CursorMemory {
        CursorMemory::new(u64::MAX)
    }
}

impl CursorMemory {
    /// None are open. From `most` bytes on they are to park.
    pub fn new(most: u64) -> CursorMemory {
        CursorMemory {
            own: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            most: AtomicU64::new(most),
            is_tight: AtomicBool::new(false),
        }
    }

    /// All that cursors hold, in bytes.
    pub fn bytes(&self) -> u64 {
        self.own.load(Ordering::Relaxed) + self.block_bytes()
    }

    /// Bytes of blocks that are in memory only because a cursor stands in them.
    pub fn block_bytes(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Counts bytes of a cursor.
    pub fn add(&self, bytes: u64) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes bytes back that were counted.
    pub fn subtract(&self, bytes: u64) {
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes how many bytes of blocks cursors keep in memory, and decides whether cursors are to
    /// park.
    pub fn note_blocks(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Relaxed);
        let is_tight = self.bytes() > self.most.load(Ordering::Relaxed);
        self.is_tight.store(is_tight, Ordering::Relaxed);
    }

    /// Whether cursors are to park.
    #[inline]
    pub fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_park_from_their_share_on_and_no_longer_than_that() {
        let memory = CursorMemory::new(100);
        memory.add(60);
        memory.note_blocks(40);
        assert!(!memory.is_tight());
        memory.note_blocks(41);
        assert!(memory.is_tight() && memory.bytes() == 101);
        memory.subtract(60);
        memory.note_blocks(41);
        assert!(!memory.is_tight() && memory.bytes() == 41);
    }
}
