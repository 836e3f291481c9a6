//! Blocks and index blocks in memory of a table of which few are in memory, found by number under a
//! lock.
//!
//! A table with a paged index has no array of slots, which would take eight bytes for each of its
//! blocks. This map has the blocks and index blocks of such a table that are loaded.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_arena::Allocation;

/// Approximate bytes of overhead of a loaded block, besides its own bytes.
pub(crate) const ENTRY_BYTES: usize = 48;

#[derive(Debug)]
struct PagedBlock {
    piece: Allocation,
    touched: bool,
}

/// Allocations of loaded blocks and index blocks, by number.
#[derive(Debug, Default)]
pub(crate) struct BlockMap {
    pieces: Mutex<BTreeMap<u32, PagedBlock>>,
}

impl BlockMap {
    fn lock_pieces(&self) -> MutexGuard<'_, BTreeMap<u32, PagedBlock>> {
        self.pieces.lock().ignore_poison()
    }

    /// Returns the allocation with this number, and marks it as read.
    pub(crate) fn get(&self, number: u32) -> Option<Allocation> {
        let mut all = self.lock_pieces();
        let held = all.get_mut(&number)?;
        held.touched = true;
        Some(held.piece.clone())
    }

    /// Returns the chunk of the arena with the allocation of this number, without marking it as
    /// read.
    pub(crate) fn chunk(&self, number: u32) -> Option<u32> {
        self.lock_pieces().get(&number).map(|held| held.piece.chunk())
    }

    /// Puts an allocation into an empty slot. If the slot is not empty, returns the allocation in
    /// it.
    pub(crate) fn put(&self, number: u32, piece: Allocation) -> Result<(), Allocation> {
        let mut all = self.lock_pieces();
        if let Some(there) = all.get(&number) {
            return Err(there.piece.clone());
        }
        all.insert(number, PagedBlock { piece, touched: false });
        Ok(())
    }

    /// Removes an allocation, and returns its bytes; 0 if there was none. Existing references keep
    /// the allocation.
    pub(crate) fn evict(&self, number: u32) -> usize {
        let evicted = self.lock_pieces().remove(&number);
        evicted.map_or(0, |held| held.piece.memory_bytes() + ENTRY_BYTES)
    }

    /// Returns whether the allocation was read since the last call, and clears the mark.
    pub(crate) fn take_touched(&self, number: u32) -> bool {
        self.lock_pieces().get_mut(&number).is_some_and(|held| std::mem::take(&mut held.touched))
    }
}
