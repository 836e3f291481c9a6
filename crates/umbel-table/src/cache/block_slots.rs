//! The slots of a table, which map a block number to the cached block without hashing and without a
//! lock.
//!
//! The store's block cache decides which blocks stay in memory. It is notified of every loaded
//! block ([`BlockCache::admit`]), and calls [`BlockSlots::evict`] when it needs the memory. The
//! clock of the block cache calls [`BlockSlots::take_touched`].

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_arena::{Allocation, Arena, SlotArray, SlotsGuard};

use crate::block::{Block, BlockView};
use crate::cache::block_map::{BlockMap, ENTRY_BYTES};

/// Policy that decides which blocks stay in memory.
pub trait BlockCache: Send + Sync + Debug {
    /// Notifies the cache that a block of `bytes` bytes was loaded and put into slot `block` of
    /// `slots`.
    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize);

    /// Notifies the cache that a block of `bytes` bytes was read from a file. Returns whether the
    /// block may be cached.
    fn on_block_read(&self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// Returns the arena for blocks, indexes and slots; called once for each opened table. By
    /// default each table gets an arena of its own; one arena for all tables wastes the least
    /// memory.
    fn arena(&self) -> Arena {
        Arena::new()
    }

    /// Returns the arena for data that stays in memory while a table is open. An arena separate
    /// from that of evicted data lets whole chunks of evicted data be freed. By default both are
    /// the same arena.
    fn pinned_arena(&self, arena: &Arena) -> Arena {
        arena.clone()
    }
}

/// A cache that evicts no block, for tools and tests that open a single table.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnboundedCache;

impl BlockCache for UnboundedCache {
    fn admit(&self, _slots: &Arc<BlockSlots>, _block: u32, _bytes: usize) {}
}

/// One slot for each block of a table. A table with a paged index has no slots; its loaded blocks
/// are found by number.
#[derive(Debug)]
pub struct BlockSlots {
    slots: SlotArray,
    paged: Option<BlockMap>,
    arena: Arena,
    resident_bytes: AtomicU64,
    misses: AtomicU64,
}

/// Guard for reading blocks in their slots. Blocks stay in memory until the guard is dropped.
#[derive(Debug)]
pub(crate) struct BlockSlotsGuard<'a>(SlotsGuard<'a>);

impl BlockSlotsGuard<'_> {
    /// Returns the block in a slot, and marks it as read.
    #[inline]
    pub(crate) fn get(&self, block: usize) -> Option<BlockView<'_>> {
        self.0.get(block).map(BlockView::new)
    }

    /// Returns the block in a slot, without marking it as read.
    #[inline]
    pub(crate) fn peek(&self, block: usize) -> Option<BlockView<'_>> {
        self.0.peek(block).map(BlockView::new)
    }
}

impl BlockSlots {
    /// Creates empty slots for a table of `blocks` blocks. The blocks are in `arena`, and the slots
    /// in `own`.
    pub(crate) fn new(own: &Arena, arena: Arena, blocks: usize) -> BlockSlots {
        BlockSlots {
            slots: SlotArray::new(own, &arena, blocks),
            paged: None,
            arena,
            resident_bytes: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Creates the slots of a table with a paged index.
    pub(crate) fn paged(own: &Arena, arena: Arena) -> BlockSlots {
        BlockSlots { paged: Some(BlockMap::default()), ..BlockSlots::new(own, arena, 0) }
    }

    /// Returns a loaded block or index block of a table with a paged index.
    pub(crate) fn paged_piece(&self, number: u32) -> Option<Allocation> {
        self.paged.as_ref()?.get(number)
    }

    /// Keeps a loaded block or index block of a table with a paged index. Returns the allocation
    /// now kept under the number, whether it is `piece`, and its bytes.
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

    /// Returns the arena of the blocks.
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

    /// Bytes of the slots themselves, without the blocks.
    pub fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
    }

    /// Returns a guard for reading blocks in their slots, for the duration of a call.
    #[inline]
    pub(crate) fn read(&self) -> BlockSlotsGuard<'_> {
        BlockSlotsGuard(self.slots.read())
    }

    /// Returns a reference to the block in a slot; `None` if the block is not cached.
    pub fn get(&self, block: usize) -> Option<Block> {
        self.slots.read().get_owned(block).map(Block::from_piece)
    }

    /// Prefetches the cache line of a slot.
    #[inline]
    pub(crate) fn prefetch(&self, block: usize) {
        self.slots.prefetch(block);
    }

    /// If the block is cached, prefetches the cache lines that a point read needs before the entry.
    /// Returns whether the block is cached.
    #[inline]
    pub(crate) fn prefetch_block(&self, block: usize) -> bool {
        self.slots.prefetch_allocation(block, 3)
    }

    /// Prefetches the first `lines` cache lines of a block, if the block is cached.
    #[inline]
    pub(crate) fn prefetch_lines(&self, block: usize, lines: usize) {
        self.slots.prefetch_allocation(block, lines);
    }

    /// Puts a loaded block into its empty slot, and returns the block and its bytes. If another
    /// thread was faster, returns the block of that thread and `None`.
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

    /// Empties a slot. Returns the bytes of its block; 0 if the slot was empty. Readers of the
    /// block keep it in memory until they are done.
    pub fn evict(&self, block: u32) -> usize {
        let bytes = match &self.paged {
            Some(sparse) => sparse.evict(block),
            None => self.slots.evict(block as usize),
        };
        self.resident_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        bytes
    }

    /// Returns the number of the arena chunk that has the block; `None` if the slot is empty.
    pub fn chunk(&self, block: u32) -> Option<u32> {
        match &self.paged {
            Some(sparse) => sparse.chunk(block),
            None => self.slots.chunk(block as usize),
        }
    }

    /// Returns whether the block was read since the last call, and clears the mark.
    pub fn take_touched(&self, block: u32) -> bool {
        match &self.paged {
            Some(sparse) => sparse.take_touched(block),
            None => self.slots.take_touched(block as usize),
        }
    }

    /// Bytes of the blocks in the slots.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    /// Number of blocks that were read from the file.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    pub(crate) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }
}
