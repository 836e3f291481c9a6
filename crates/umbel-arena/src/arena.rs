//! The arena: memory for allocations of any length, and the epochs of their readers.

use std::sync::Arc;

use crate::allocation::Allocation;
use crate::chunk_allocator::{ChunkAllocator, ChunkUsage};
use crate::epoch::Epochs;

/// Memory for allocations of any length. Clones share the memory, which is freed with the last
/// clone and the last allocation.
#[derive(Debug, Clone)]
pub struct Arena {
    memory: Arc<ChunkAllocator>,
    epochs: Arc<Epochs>,
}

/// Memory of an arena, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaUsage {
    /// Bytes in allocations, headers and padding to whole cache lines included. Evicted allocations
    /// that readers still use are included.
    pub used: usize,
    /// Bytes of whole chunks taken from the system.
    pub reserved: usize,
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

impl Arena {
    /// Creates an empty arena.
    pub fn new() -> Arena {
        Arena { memory: Arc::default(), epochs: Arc::default() }
    }

    /// Copies `parts` one after the other into a new allocation. Like every memory allocation,
    /// aborts if the system has no memory.
    ///
    /// REQUIRES: `parts` together are shorter than [`Allocation::BYTES_MAX`].
    pub fn store(&self, parts: &[&[u8]]) -> Allocation {
        Allocation::new(&self.memory, parts)
    }

    /// Returns the memory that the arena uses.
    pub fn bytes(&self) -> ArenaUsage {
        let (used, held) = self.memory.bytes();
        ArenaUsage { used, reserved: held }
    }

    /// Returns partly used chunks of several allocations, the least used first. A chunk without
    /// allocations is returned to the system.
    pub fn sparsest_chunks(&self) -> Vec<ChunkUsage> {
        self.memory.sparsest_chunks()
    }

    /// Returns the epochs that protect the readers of this arena's slots.
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
    fn large_piece_frees_its_chunk() {
        let arena = Arena::new();
        let content = vec![7u8; 5 << 20];
        let piece = arena.store(&[b"x", &content]);
        assert_eq!(piece.len(), content.len() + 1);
        assert_eq!((piece[0], piece[1], piece[5 << 20]), (b'x', 7, 7));
        let bytes = arena.bytes();
        assert_eq!(bytes.used, bytes.reserved);
        assert!(bytes.used >= piece.len() && bytes.used < piece.len() + 128);
        drop(piece);
        assert_eq!(arena.bytes(), ArenaUsage { used: 0, reserved: 0 });
    }

    #[test]
    fn allocation_outlives_its_arena() {
        let arena = Arena::new();
        let piece = arena.store(&[b"still here"]);
        drop(arena);
        assert_eq!(&*piece, b"still here");
    }

    #[test]
    fn empty_chunks_are_freed() {
        let arena = Arena::new();
        let pieces: Vec<Allocation> = (0..4000).map(|_| arena.store(&[&[1; 4000]])).collect();
        let full = arena.bytes();
        assert_eq!(full.used, 4000 * 4032);
        assert!(full.reserved > full.used && full.reserved < full.used + full.used / 4);
        drop(pieces);
        let empty = arena.bytes();
        assert_eq!(empty.used, 0);
        assert!(empty.reserved <= HUGE_PAGE_BYTES, "one chunk is kept: {}", empty.reserved);
    }

    #[test]
    fn sparsest_chunks_are_listed() {
        let arena = Arena::new();
        let mut pieces: Vec<Allocation> = (0..4000).map(|_| arena.store(&[&[1; 4000]])).collect();
        let last = pieces.last().unwrap().chunk();
        // Of all chunks but the last one every second piece goes.
        let mut number = 0;
        pieces.retain(|piece| {
            number += 1;
            number % 2 == 0 || piece.chunk() == last
        });
        let before = arena.bytes().reserved;
        let all = arena.sparsest_chunks();
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
            assert_eq!(chunk.used, in_it.map(Allocation::memory_bytes).sum::<usize>());
        }
        pieces.retain(|piece| !named.contains(&piece.chunk()));
        let after = arena.bytes().reserved;
        // One empty chunk is kept.
        assert!(before - after >= 1 << 20, "{before} {after}");
        assert!(arena.sparsest_chunks().len() >= 2, "the others are half full");
        drop(pieces);
        assert!(arena.sparsest_chunks().is_empty(), "nothing is used");
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
            let mut pieces: Vec<(Allocation, u8)> = Vec::new();
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
