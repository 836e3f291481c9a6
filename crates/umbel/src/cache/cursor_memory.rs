//! [`CursorMemory`]: memory of open cursors and iterators, and its limit.
//!
//! A cursor is in one block of each source. That block stays in memory while the cursor is there,
//! cached or not. A thousand iterators at different keys of four sources keep four thousand blocks.
//! These count within the budget, and the cache yields to them. Where the blocks and the cursors
//! take more than their share, cursors park: each copies its entry, releases its blocks, and seeks
//! when it is moved.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of cursors, and whether they are to park.
#[derive(Debug)]
pub struct CursorMemory {
    /// Bytes of the cursors themselves, with the entries that parked ones keep.
    cursor_bytes: AtomicU64,
    /// Bytes of blocks that are in memory only because a cursor is in them.
    blocks: AtomicU64,
    max_bytes: AtomicU64,
    is_tight: AtomicBool,
}

impl Default for CursorMemory {
    /// Counter without a limit.
    fn default() -> CursorMemory {
        CursorMemory::new(u64::MAX)
    }
}

impl CursorMemory {
    /// Counter without cursors. Above `max_bytes` bytes they are to park.
    pub fn new(bytes_max: u64) -> CursorMemory {
        CursorMemory {
            cursor_bytes: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            max_bytes: AtomicU64::new(bytes_max),
            is_tight: AtomicBool::new(false),
        }
    }

    /// Bytes of cursors and of the blocks that they keep.
    pub fn bytes(&self) -> u64 {
        self.cursor_bytes.load(Ordering::Relaxed) + self.block_bytes()
    }

    /// Bytes of blocks that are in memory only because a cursor is in them.
    pub fn block_bytes(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Adds bytes of a cursor.
    pub fn add(&self, bytes: u64) {
        self.cursor_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes that were added.
    pub fn subtract(&self, bytes: u64) {
        self.cursor_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes of blocks that cursors keep in memory, and decides whether cursors are to
    /// park.
    pub fn note_blocks(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Relaxed);
        let is_tight = self.bytes() > self.max_bytes.load(Ordering::Relaxed);
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
    fn cursors_park_only_while_over_their_share() {
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
