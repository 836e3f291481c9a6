//! Pieces of a table of which few are in memory: found by number under a lock.
//!
//! A table whose index is paged has no array of slots, which would take eight bytes for each of its
//! blocks. What is loaded of it, blocks and parts of the index, stands here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use umbel_arena::Piece;

/// What a piece takes here besides its own bytes, about.
pub(crate) const PLACE_BYTES: usize = 48;

#[derive(Debug)]
struct Held {
    piece: Piece,
    touched: bool,
}

/// Pieces by number.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    held: Mutex<BTreeMap<u32, Held>>,
}

impl Sparse {
    fn held(&self) -> MutexGuard<'_, BTreeMap<u32, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The piece of a number, which is marked as read.
    pub(crate) fn get(&self, number: u32) -> Option<Piece> {
        let mut all = self.held();
        let held = all.get_mut(&number)?;
        held.touched = true;
        Some(held.piece.clone())
    }

    /// The chunk that the piece of a number lies in, which is not marked.
    pub(crate) fn chunk(&self, number: u32) -> Option<u32> {
        self.held().get(&number).map(|held| held.piece.chunk())
    }

    /// Puts a piece where there is none. Gives the one that is there where there is.
    pub(crate) fn put(&self, number: u32, piece: Piece) -> Result<(), Piece> {
        let mut all = self.held();
        if let Some(there) = all.get(&number) {
            return Err(there.piece.clone());
        }
        all.insert(number, Held { piece, touched: false });
        Ok(())
    }

    /// Takes a piece out; how many bytes it took, 0 where there was none. Who holds it keeps it.
    pub(crate) fn evict(&self, number: u32) -> usize {
        let gone = self.held().remove(&number);
        gone.map_or(0, |held| held.piece.memory_bytes() + PLACE_BYTES)
    }

    /// Whether a piece was read since this was last asked; clears the mark.
    pub(crate) fn take_touched(&self, number: u32) -> bool {
        self.held().get_mut(&number).is_some_and(|held| std::mem::take(&mut held.touched))
    }
}
