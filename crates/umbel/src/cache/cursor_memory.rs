//! [`CursorMemory`]: counts the memory of open cursors and iterators against a limit.
//!
//! A cursor is in one block of each memtable or table that it merges. The block stays in memory
//! while the cursor is in it, even if the cache evicts it. A thousand iterators at different keys
//! of four tables keep four thousand blocks. The memory budget includes these blocks, and the block
//! cache shrinks to leave room for them. Cursors park if they and their blocks take more than their
//! share. A parked cursor has copied its entry and released its blocks, and seeks when it is moved.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of cursors, and whether cursors must park.
#[derive(Debug)]
pub struct CursorMemory {
    /// Bytes of the cursors themselves, with the entries that parked cursors keep.
    cursor_bytes: AtomicU64,
    /// Bytes of evicted blocks that are in memory only because a cursor is in them.
    blocks: AtomicU64,
    max_bytes: AtomicU64,
    is_tight: AtomicBool,
}

impl Default for CursorMemory {
    /// Creates a counter without a limit.
    fn default() -> CursorMemory {
        CursorMemory::new(u64::MAX)
    }
}

impl CursorMemory {
    /// Creates a counter of no cursors. Cursors must park above `bytes_max` bytes.
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

    /// Bytes of evicted blocks that are in memory only because a cursor is in them.
    pub fn block_bytes(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Adds the bytes of a cursor to the counter.
    pub fn add(&self, bytes: u64) {
        self.cursor_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes of a cursor that [`CursorMemory::add`] added.
    pub fn subtract(&self, bytes: u64) {
        self.cursor_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes of blocks that cursors keep in memory, and decides whether cursors must park.
    pub fn note_blocks(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Relaxed);
        let is_tight = self.bytes() > self.max_bytes.load(Ordering::Relaxed);
        self.is_tight.store(is_tight, Ordering::Relaxed);
    }

    /// Whether cursors must park, since they exceed their share.
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
