//! The slots of a table: block number to cached block, without hashing and without a lock.
//!
//! The engine's cache decides what stays: it is told of every block that was loaded
//! ([`BlockCache::admit`]) and calls [`BlockSlots::evict`] when it needs the room. A clock over the
//! slots asks [`BlockSlots::take_touched`].

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use crate::block::Block;

/// What decides which blocks stay in memory.
pub trait BlockCache: Send + Sync + Debug {
    /// A block of `bytes` bytes was loaded and put into slot `block` of `slots`.
    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize);
}

/// A cache that keeps everything: for tools and tests that open a table by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeepAll;

impl BlockCache for KeepAll {
    fn admit(&self, _slots: &Arc<BlockSlots>, _block: u32, _bytes: usize) {}
}

/// One slot per block of a table.
#[derive(Debug)]
pub struct BlockSlots {
    slots: Box<[ArcSwapOption<Block>]>,
    /// 1 where the block was read since the clock last passed. Apart from the slots, so that
    /// setting a flag does not take the slot's line from the other cores.
    touched: Box<[AtomicU8]>,
    resident_bytes: AtomicU64,
    misses: AtomicU64,
}

impl BlockSlots {
    /// Empty slots for a table of `blocks` blocks.
    pub(crate) fn new(blocks: usize) -> BlockSlots {
        BlockSlots {
            slots: (0..blocks).map(|_| ArcSwapOption::empty()).collect(),
            touched: (0..blocks).map(|_| AtomicU8::new(0)).collect(),
            resident_bytes: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the table has no blocks.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Lends the block in a slot for the time of a call, without counting a reference. Marks it as
    /// touched. `None` where the slot is empty or the number too large.
    #[inline]
    pub fn get(&self, block: usize) -> Option<Guard<Option<Arc<Block>>>> {
        let guard = self.slots.get(block)?.load();
        guard.as_ref()?;
        if let Some(touched) = self.touched.get(block)
            && touched.load(Ordering::Relaxed) == 0
        {
            touched.store(1, Ordering::Relaxed);
        }
        Some(guard)
    }

    /// Puts a block that was loaded into its empty slot. Where another thread was faster, gives the
    /// block that is there and `false`.
    pub(crate) fn put(&self, block: usize, loaded: Arc<Block>) -> (Arc<Block>, bool) {
        let Some(slot) = self.slots.get(block) else { return (loaded, false) };
        let none: Option<Arc<Block>> = None;
        let before = slot.compare_and_swap(&none, Some(Arc::clone(&loaded)));
        if let Some(there) = before.as_ref() {
            return (Arc::clone(there), false);
        }
        self.resident_bytes.fetch_add(loaded.memory_bytes() as u64, Ordering::Relaxed);
        (loaded, true)
    }

    /// Empties a slot. Returns how many bytes the cache gave up: 0 where it was empty. Readers that
    /// hold the block keep it alive until they are done.
    pub fn evict(&self, block: u32) -> usize {
        let Some(slot) = self.slots.get(block as usize) else { return 0 };
        let Some(evicted) = slot.swap(None) else { return 0 };
        let bytes = evicted.memory_bytes();
        self.resident_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        bytes
    }

    /// Whether the block was read since this was last asked; clears the mark.
    pub fn take_touched(&self, block: u32) -> bool {
        let Some(touched) = self.touched.get(block as usize) else { return false };
        let was_touched = touched.load(Ordering::Relaxed) != 0;
        if was_touched {
            touched.store(0, Ordering::Relaxed);
        }
        was_touched
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
