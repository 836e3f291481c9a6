//! The slots of a table: block number to cached block, without hashing and without a lock.
//!
//! The engine's cache decides what stays: it is notified of every block that was loaded
//! ([`BlockCache::admit`]) and calls [`BlockSlots::evict`] when it needs the memory. A clock over
//! the slots calls [`BlockSlots::take_touched`].

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_arena::{Allocation, Arena, SlotArray, SlotsGuard};

use crate::block::{Block, BlockView};
use crate::cache::block_map::{BlockMap, ENTRY_BYTES};

/// Policy that decides which blocks stay in memory.
pub trait BlockCache: Send + Sync + Debug {
    /// A block of `bytes` bytes was loaded and put into slot `block` of `slots`.
    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize);

    /// A block of `bytes` bytes was read from a file. Returns whether it may be kept.
    fn on_block_read(&self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// Arena of blocks, indexes and slots. Called once for each opened table; one
    /// arena for all tables wastes the least memory. By default an arena of the table's own.
    fn arena(&self) -> Arena {
        Arena::new()
    }

    /// Arena of data that stays while a table is open. It is separate from data that is evicted, so
    /// that whole chunks of the latter can be freed. By default the arena of everything else.
    fn pinned_arena(&self, arena: &Arena) -> Arena {
        arena.clone()
    }
}

/// A cache that keeps everything, for tools and tests that open a single table.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnboundedCache;

impl BlockCache for UnboundedCache {
    fn admit(&self, _slots: &Arc<BlockSlots>, _block: u32, _bytes: usize) {}
}

/// One slot per block of a table. A paged index has no slots; loaded
/// blocks are found by their number.
#[derive(Debug)]
pub struct BlockSlots {
    slots: SlotArray,
    paged: Option<BlockMap>,
    arena: Arena,
    resident_bytes: AtomicU64,
    misses: AtomicU64,
}

/// Reader of blocks in their slots, which stay until this is dropped.
#[derive(Debug)]
pub(crate) struct BlockSlotsGuard<'a>(SlotsGuard<'a>);

impl BlockSlotsGuard<'_> {
    /// The block in a slot, which is marked as read.
    #[inline]
    pub(crate) fn get(&self, block: usize) -> Option<BlockView<'_>> {
        self.0.get(block).map(BlockView::new)
    }

    /// The block in a slot, without a mark.
    #[inline]
    pub(crate) fn peek(&self, block: usize) -> Option<BlockView<'_>> {
        self.0.peek(block).map(BlockView::new)
    }
}

impl BlockSlots {
    /// Empty slots for a table of `blocks` blocks, which live in `arena`, the slots in `own`.
    pub(crate) fn new(own: &Arena, arena: Arena, blocks: usize) -> BlockSlots {
        BlockSlots {
            slots: SlotArray::new(own, &arena, blocks),
            paged: None,
            arena,
            resident_bytes: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Slots of a table whose index is paged.
    pub(crate) fn paged(own: &Arena, arena: Arena) -> BlockSlots {
        BlockSlots { paged: Some(BlockMap::default()), ..BlockSlots::new(own, arena, 0) }
    }

    /// A block or a part of the index that was loaded, where there are no slots.
    pub(crate) fn paged_piece(&self, number: u32) -> Option<Allocation> {
        self.paged.as_ref()?.get(number)
    }

    /// Keeps a piece where there are no slots. Returns the piece that is there now, whether it is
    /// this one, and the bytes it takes.
    pub(crate) fn insert_paged(&self, number: u32, piece: Allocation) -> (Allocation, bool, usize) {
        let bytes = piece.memory_bytes() + ENTRY_BYTES;
        let Some(sparse) = &self.paged else { return (piece, false, bytes) };
        self.resident_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        match sparse.put(number, piece.clone()) {
            Ok(()) => (piece, true, bytes),
            Err(there) => {
                self.resident_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
                (there, false, bytes)
            }
        }
    }

    /// Arena of the blocks.
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the table has no blocks.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Number of bytes the slots themselves take.
    pub fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
    }

    /// Begins to read blocks in their slots, for the length of a call.
    #[inline]
    pub(crate) fn read(&self) -> BlockSlotsGuard<'_> {
        BlockSlotsGuard(self.slots.read())
    }

    /// The block in a slot, for as long as the caller needs it; `None` where it is not cached.
    pub fn get(&self, block: usize) -> Option<Block> {
        self.slots.read().get_owned(block).map(Block::from_piece)
    }

    /// Prefetches the line that a slot stands in.
    #[inline]
    pub(crate) fn prefetch(&self, block: usize) {
        self.slots.prefetch(block);
    }

    /// Prefetches the lines that a point read needs before the entry, where the block is cached.
    /// Returns whether it is.
    #[inline]
    pub(crate) fn prefetch_block(&self, block: usize) -> bool {
        self.slots.prefetch_allocation(block, 3)
    }

    /// Prefetches the first lines of the block, where it is cached.
    #[inline]
    pub(crate) fn prefetch_lines(&self, block: usize, lines: usize) {
        self.slots.prefetch_allocation(block, lines);
    }

    /// Puts a block that was loaded into its empty slot, and says how many bytes it takes there.
    /// Where another thread was faster, gives the block that is there and `None`.
    pub(crate) fn put(&self, block: usize, loaded: Block) -> (Block, Option<usize>) {
        if self.paged.is_some() {
            let Ok(number) = u32::try_from(block) else { return (loaded, None) };
            let (piece, was_empty, bytes) = self.insert_paged(number, loaded.into_piece());
            return (Block::from_piece(piece), was_empty.then_some(bytes));
        }
        if block >= self.slots.len() {
            return (loaded, None);
        }
        let bytes = loaded.memory_bytes() as u64;
        // Counted before other threads can see it, so that no eviction subtracts an uncounted
        // piece.
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
        let bytes = match &self.paged {
            Some(sparse) => sparse.evict(block),
            None => self.slots.evict(block as usize),
        };
        self.resident_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        bytes
    }

    /// The number of the arena's chunk that the block lies in; `None` where the slot is empty.
    pub fn chunk(&self, block: u32) -> Option<u32> {
        match &self.paged {
            Some(sparse) => sparse.chunk(block),
            None => self.slots.chunk(block as usize),
        }
    }

    /// Whether the block was read since the last call; clears the mark.
    pub fn take_touched(&self, block: u32) -> bool {
        match &self.paged {
            Some(sparse) => sparse.take_touched(block),
            None => self.slots.take_touched(block as usize),
        }
    }

    /// Number of bytes the blocks in the slots take.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    /// Number of blocks had to be read from the file.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    pub(crate) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }
}
