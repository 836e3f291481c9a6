//! Pieces of a table of which few are in memory: found by number under a lock.
//!
//! A table whose index is paged has no array of slots, which would take eight bytes for each of its
//! blocks. What is loaded of it, blocks and parts of the index, stands here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_arena::Allocation;

/// Approximate overhead of a piece besides its own bytes.
pub(crate) const ENTRY_BYTES: usize = 48;

#[derive(Debug)]
struct PagedBlock {
    piece: Allocation,
    touched: bool,
}

/// Pieces by number.
#[derive(Debug, Default)]
pub(crate) struct BlockMap {
    pieces: Mutex<BTreeMap<u32, PagedBlock>>,
}

impl BlockMap {
    fn lock_pieces(&self) -> MutexGuard<'_, BTreeMap<u32, PagedBlock>> {
        self.pieces.lock().ignore_poison()
    }

    /// The piece of a number, which is marked as read.
    pub(crate) fn get(&self, number: u32) -> Option<Allocation> {
        let mut all = self.lock_pieces();
        let held = all.get_mut(&number)?;
        held.touched = true;
        Some(held.piece.clone())
    }

    /// The chunk that the piece of a number lies in, which is not marked.
    pub(crate) fn chunk(&self, number: u32) -> Option<u32> {
        self.lock_pieces().get(&number).map(|held| held.piece.chunk())
    }

    /// Puts a piece into an empty slot. Returns the piece that is there where the slot is not
    /// empty.
    pub(crate) fn put(&self, number: u32, piece: Allocation) -> Result<(), Allocation> {
        let mut all = self.lock_pieces();
        if let Some(there) = all.get(&number) {
            return Err(there.piece.clone());
        }
        all.insert(number, PagedBlock { piece, touched: false });
        Ok(())
    }

    /// Takes a piece out; how many bytes it took, 0 where there was none. Existing holders keep it.
    pub(crate) fn evict(&self, number: u32) -> usize {
        let evicted = self.lock_pieces().remove(&number);
        evicted.map_or(0, |held| held.piece.memory_bytes() + ENTRY_BYTES)
    }

    /// Whether a piece was read since the last call; clears the mark.
    pub(crate) fn take_touched(&self, number: u32) -> bool {
        self.lock_pieces().get_mut(&number).is_some_and(|held| std::mem::take(&mut held.touched))
    }
}
