//! The slots of a table: block number to cached block, without hashing and without a lock.
//!
//! The engine's cache decides what stays: it is told of every block that was loaded
//! ([`BlockCache::admit`]) and calls [`BlockSlots::evict`] when it needs the room. A clock over the
//! slots asks [`BlockSlots::take_touched`].

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_arena::{Arena, Piece, Reading, Slots};

use crate::block::{Block, View};
use crate::sparse::{PLACE_BYTES, Sparse};

/// What decides which blocks stay in memory.
pub trait BlockCache: Send + Sync + Debug {
    /// A block of `bytes` bytes was loaded and put into slot `block` of `slots`.
    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize);

    /// A block of `bytes` bytes was read from a file. Answers whether it may be kept.
    fn loaded(&self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// Where blocks, indexes and slots are to live. Asked once by each table that is opened; one
    /// arena for all tables wastes the least. Unless said otherwise, an arena of the table's own.
    fn arena(&self) -> Arena {
        Arena::new()
    }

    /// Where what stays while a table is open is to live: apart from what comes and goes, so that
    /// of this whole chunks can be given back. Unless said otherwise, where everything lives.
    fn arena_of_what_stays(&self, arena: &Arena) -> Arena {
        arena.clone()
    }
}

/// A cache that keeps everything: for tools and tests that open a table by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeepAll;

impl BlockCache for KeepAll {
    fn admit(&self, _slots: &Arc<BlockSlots>, _block: u32, _bytes: usize) {}
}

/// One slot per block of a table. Where the table's index is paged there are none, and what is
/// loaded is found by its number.
#[derive(Debug)]
pub struct BlockSlots {
    slots: Slots,
    sparse: Option<Sparse>,
    arena: Arena,
    resident_bytes: AtomicU64,
    misses: AtomicU64,
}

/// Somebody who reads blocks in their slots, which stay until this is dropped.
#[derive(Debug)]
pub(crate) struct BlockReading<'a>(Reading<'a>);

impl BlockReading<'_> {
    /// The block in a slot, which is marked as read.
    #[inline]
    pub(crate) fn get(&self, block: usize) -> Option<View<'_>> {
        self.0.get(block).map(View::new)
    }

    /// The block in a slot, without a mark.
    #[inline]
    pub(crate) fn peek(&self, block: usize) -> Option<View<'_>> {
        self.0.peek(block).map(View::new)
    }
}

impl BlockSlots {
    /// Empty slots for a table of `blocks` blocks, which live in `arena`, the slots in `own`.
    pub(crate) fn new(own: &Arena, arena: Arena, blocks: usize) -> BlockSlots {
        BlockSlots {
            slots: Slots::new(own, &arena, blocks),
            sparse: None,
            arena,
            resident_bytes: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// What a table has instead whose index is paged.
    pub(crate) fn sparse(own: &Arena, arena: Arena) -> BlockSlots {
        BlockSlots { sparse: Some(Sparse::default()), ..BlockSlots::new(own, arena, 0) }
    }

    /// A block or a part of the index that was loaded, where there are no slots.
    pub(crate) fn held(&self, number: u32) -> Option<Piece> {
        self.sparse.as_ref()?.get(number)
    }

    /// Keeps a piece where there are no slots. Gives the piece that is there now, whether it is
    /// this one, and the bytes it takes.
    pub(crate) fn keep(&self, number: u32, piece: Piece) -> (Piece, bool, usize) {
        let bytes = piece.memory_bytes() + PLACE_BYTES;
        let Some(sparse) = &self.sparse else { return (piece, false, bytes) };
        self.resident_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        match sparse.put(number, piece.clone()) {
            Ok(()) => (piece, true, bytes),
            Err(there) => {
                self.resident_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
                (there, false, bytes)
            }
        }
    }

    /// Where the blocks live.
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the table has no blocks.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many bytes the slots themselves take.
    pub fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
    }

    /// Begins to read blocks in their slots, for the length of a call.
    #[inline]
    pub(crate) fn read(&self) -> BlockReading<'_> {
        BlockReading(self.slots.read())
    }

    /// The block in a slot, for as long as the caller needs it; `None` where it is not cached.
    pub fn get(&self, block: usize) -> Option<Block> {
        self.slots.read().hold(block).map(Block::from_piece)
    }

    /// Asks for the line that a slot stands in.
    #[inline]
    pub(crate) fn prefetch(&self, block: usize) {
        self.slots.prefetch(block);
    }

    /// Asks for the lines that a point read needs before the entry, where the block is cached,
    /// and says whether it is.
    #[inline]
    pub(crate) fn prefetch_block(&self, block: usize) -> bool {
        self.slots.prefetch_piece(block, 3)
    }

    /// Asks for the first lines of the block, where it is cached.
    #[inline]
    pub(crate) fn prefetch_lines(&self, block: usize, lines: usize) {
        self.slots.prefetch_piece(block, lines);
    }

    /// Puts a block that was loaded into its empty slot, and says how many bytes it takes there.
    /// Where another thread was faster, gives the block that is there and `None`.
    pub(crate) fn put(&self, block: usize, loaded: Block) -> (Block, Option<usize>) {
        if self.sparse.is_some() {
            let Ok(number) = u32::try_from(block) else { return (loaded, None) };
            let (piece, was_empty, bytes) = self.keep(number, loaded.into_piece());
            return (Block::from_piece(piece), was_empty.then_some(bytes));
        }
        if block >= self.slots.len() {
            return (loaded, None);
        }
        let bytes = loaded.memory_bytes() as u64;
        // Counted before others can see it, so that no eviction takes off what was not added.
        self.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
        match self.slots.put(block, loaded.clone().into_piece()) {
            Ok(()) => (loaded, Some(bytes as usize)),
            Err(there) => {
                self.resident_bytes.fetch_sub(bytes, Ordering::Relaxed);
                (Block::from_piece(there), None)
            }
        }
    }

    /// Empties a slot. Returns how many bytes the cache gave up: 0 where it was empty. Readers that
    /// hold the block keep it alive until they are done.
    pub fn evict(&self, block: u32) -> usize {
        let bytes = match &self.sparse {
            Some(sparse) => sparse.evict(block),
            None => self.slots.evict(block as usize),
        };
        self.resident_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        bytes
    }

    /// The number of the arena's chunk that the block lies in; `None` where the slot is empty.
    pub fn chunk(&self, block: u32) -> Option<u32> {
        match &self.sparse {
            Some(sparse) => sparse.chunk(block),
            None => self.slots.chunk(block as usize),
        }
    }

    /// Whether the block was read since this was last asked; clears the mark.
    pub fn take_touched(&self, block: u32) -> bool {
        match &self.sparse {
            Some(sparse) => sparse.take_touched(block),
            None => self.slots.take_touched(block as usize),
        }
    }

    /// How many bytes the blocks in the slots take.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    /// How many blocks had to be read from the file.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    pub(crate) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }
}
