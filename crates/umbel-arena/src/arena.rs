//! The arena: memory in pieces, and the epochs of those who look at them.

use std::sync::Arc;

use crate::epoch::Epochs;
use crate::memory::{ChunkUse, Memory};
use crate::piece::Piece;

/// Memory in pieces. Clones share it; it goes when the last clone and the last piece have gone.
#[derive(Debug, Clone)]
pub struct Arena {
    memory: Arc<Memory>,
    epochs: Arc<Epochs>,
}

/// What an arena holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaBytes {
    /// In pieces, their headers and padding to whole lines included; also those that left their
    /// slot and wait for a reader.
    pub used: usize,
    /// Taken from the system: whole chunks.
    pub held: usize,
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

impl Arena {
    /// An arena that holds nothing yet.
    pub fn new() -> Arena {
        Arena { memory: Arc::default(), epochs: Arc::default() }
    }

    /// Copies `parts` one behind the other into a new piece. Aborts, as every allocation does,
    /// where the system has no memory.
    ///
    /// REQUIRES: together they are shorter than [`Piece::BYTES_MAX`].
    pub fn store(&self, parts: &[&[u8]]) -> Piece {
        Piece::new(&self.memory, parts)
    }

    /// What the arena holds.
    pub fn bytes(&self) -> ArenaBytes {
        let (used, held) = self.memory.bytes();
        ArenaBytes { used, held }
    }

    /// The chunks of several pieces that are used in part, those first of which the least is used:
    /// once no piece lies in one any more it goes back to the system.
    pub fn emptiest(&self) -> Vec<ChunkUse> {
        self.memory.emptiest()
    }

    /// The epochs that protect what readers of this arena's slots look at.
    pub fn epochs(&self) -> &Arc<Epochs> {
        &self.epochs
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::chunk::HUGE_PAGE_BYTES;
    use proptest::prelude::*;

    #[test]
    fn a_large_piece_takes_its_chunk_along() {
        let arena = Arena::new();
        let content = vec![7u8; 5 << 20];
        let piece = arena.store(&[b"x", &content]);
        assert_eq!(piece.len(), content.len() + 1);
        assert_eq!((piece[0], piece[1], piece[5 << 20]), (b'x', 7, 7));
        let bytes = arena.bytes();
        assert_eq!(bytes.used, bytes.held);
        assert!(bytes.used >= piece.len() && bytes.used < piece.len() + 128);
        drop(piece);
        assert_eq!(arena.bytes(), ArenaBytes { used: 0, held: 0 });
    }

    #[test]
    fn a_piece_outlives_its_arena() {
        let arena = Arena::new();
        let piece = arena.store(&[b"still here"]);
        drop(arena);
        assert_eq!(&*piece, b"still here");
    }

    #[test]
    fn chunks_go_when_they_are_empty() {
        let arena = Arena::new();
        let pieces: Vec<Piece> = (0..4000).map(|_| arena.store(&[&[1; 4000]])).collect();
        let full = arena.bytes();
        assert_eq!(full.used, 4000 * 4032);
        assert!(full.held > full.used && full.held < full.used + full.used / 4);
        drop(pieces);
        let empty = arena.bytes();
        assert_eq!(empty.used, 0);
        assert!(empty.held <= HUGE_PAGE_BYTES, "one chunk is kept: {}", empty.held);
    }

    #[test]
    fn the_emptiest_chunks_are_named() {
        let arena = Arena::new();
        let mut pieces: Vec<Piece> = (0..4000).map(|_| arena.store(&[&[1; 4000]])).collect();
        let last = pieces.last().unwrap().chunk();
        // Of all chunks but the last one every second piece goes.
        let mut number = 0;
        pieces.retain(|piece| {
            number += 1;
            number % 2 == 0 || piece.chunk() == last
        });
        let before = arena.bytes().held;
        let all = arena.emptiest();
        assert!(all.is_sorted_by_key(|chunk| chunk.used), "{all:?}");
        // Enough for three of the largest.
        let mut sum = 0;
        let few = all.iter().take_while(|chunk| {
            sum += chunk.bytes;
            sum - chunk.bytes < 3 << 20
        });
        let named: Vec<u32> = few.map(|chunk| chunk.number).collect();
        for chunk in &all {
            let in_it = pieces.iter().filter(|piece| piece.chunk() == chunk.number);
            assert_eq!(chunk.used, in_it.map(Piece::memory_bytes).sum::<usize>());
        }
        pieces.retain(|piece| !named.contains(&piece.chunk()));
        let after = arena.bytes().held;
        // One empty chunk is kept.
        assert!(before - after >= 1 << 20, "{before} {after}");
        assert!(arena.emptiest().len() >= 2, "the others are half full");
        drop(pieces);
        assert!(arena.emptiest().is_empty(), "nothing is used");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn pieces_keep_their_bytes(
            steps in proptest::collection::vec(
                (any::<bool>(), 0usize..30_000, any::<usize>()),
                1..300,
            ),
        ) {
            let arena = Arena::new();
            let mut pieces: Vec<(Piece, u8)> = Vec::new();
            for (number, (add, len, pick)) in steps.into_iter().enumerate() {
                if add || pieces.is_empty() {
                    let byte = number as u8;
                    let halves = [vec![byte; len / 2], vec![byte; len - len / 2]];
                    pieces.push((arena.store(&[&halves[0], &halves[1]]), byte));
                } else {
                    let (piece, byte) = pieces.swap_remove(pick % pieces.len());
                    prop_assert!(piece.iter().all(|other| *other == byte));
                }
                let used: usize = pieces.iter().map(|(piece, _)| piece.memory_bytes()).sum();
                prop_assert_eq!(arena.bytes().used, used);
            }
            for (piece, byte) in pieces {
                prop_assert!(piece.iter().all(|other| *other == byte));
            }
            prop_assert_eq!(arena.bytes().used, 0);
        }
    }
}
