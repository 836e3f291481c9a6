//! The block cache: blocks are in the slots of their table, and this module decides which blocks to
//! evict.
//!
//! Reading a cached block does not involve the cache. A loaded block is put on a clock. When the
//! clock holds more bytes than its capacity, its hand passes over the slots. The hand evicts blocks
//! that no reader touched since its last pass, and spares touched blocks once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_arena::{Arena, ArenaUsage};
use umbel_table::{BlockCache, BlockSlots};

use crate::cache::cursor_memory::CursorMemory;

/// Even in the smallest cache, this many evicted bytes may stay in memory until readers leave them.
const PENDING_BYTES_MIN: u64 = 64 << 10;

#[derive(Debug)]
struct ClockEntry {
    slots: Weak<BlockSlots>,
    block: u32,
    /// Chunk of the arena that contains the block.
    chunk: u32,
    bytes: usize,
}

/// CLOCK cache of the blocks of all tables of a store, or of all stores that share a budget.
#[derive(Debug)]
pub struct ClockCache {
    capacity: AtomicU64,
    held_bytes: AtomicU64,
    admitted: AtomicU64,
    evicted: AtomicU64,
    entries: Mutex<VecDeque<ClockEntry>>,
    /// Arena of the blocks and index blocks of all tables that are loaded and evicted.
    arena: Arena,
    /// Arena of the indexes and block slots of tables, which stay in memory while the table is
    /// open.
    pinned_arena: Arena,
    /// Memory of cursors, including blocks that left their slots.
    cursors: Arc<CursorMemory>,
}

impl ClockCache {
    /// Creates a cache of about `capacity` bytes of blocks. `cursors` counts the blocks that
    /// cursors keep after their eviction.
    pub fn new(capacity: u64, cursors: Arc<CursorMemory>) -> ClockCache {
        ClockCache {
            cursors,
            capacity: AtomicU64::new(capacity),
            held_bytes: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            entries: Mutex::default(),
            arena: Arena::new(),
            pinned_arena: Arena::new(),
        }
    }

    /// The counter of the memory of cursors.
    pub fn cursors(&self) -> &Arc<CursorMemory> {
        &self.cursors
    }

    /// Counts the bytes of evicted blocks that are in memory only because a cursor is in them.
    pub fn note_cursors(&self) {
        let used = self.arena.bytes().used as u64;
        self.cursors.note_blocks(used.saturating_sub(self.held_bytes()));
    }

    /// Capacity of the cache in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity of the cache, and evicts the excess at once.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        if self.held_bytes() > capacity {
            self.evict(&mut self.entries.lock().ignore_poison());
        }
    }

    /// Frees chunks of the arena until it holds somewhat less than `bytes_max` bytes, so that calls
    /// are seldom needed. Blocks of the least used chunks are evicted first, even if they were read
    /// recently. A chunk keeps all its blocks while a reader, such as a cursor, still uses an
    /// evicted block in it: emptying the chunk would free nothing.
    pub fn release_chunks(&self, bytes_max: u64) {
        let excess = (self.arena.bytes().reserved as u64).saturating_sub(bytes_max);
        if excess == 0 {
            return;
        }
        let mut entries = self.entries.lock().ignore_poison();
        let chunks = self.chunks_to_empty(&entries, excess + bytes_max / 16);
        entries.retain(|entry| {
            if !chunks.contains(&entry.chunk) {
                return true;
            }
            if let Some(slots) = entry.slots.upgrade() {
                slots.evict(entry.block);
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            self.held_bytes.fetch_sub(entry.bytes as u64, Ordering::Relaxed);
            false
        });
        drop(entries);
        self.arena.epochs().collect();
    }

    /// Returns chunks that become empty when their blocks are evicted, up to `wanted` bytes in
    /// total.
    fn chunks_to_empty(&self, entries: &VecDeque<ClockEntry>, wanted: u64) -> HashSet<u32> {
        let mut leaving: HashMap<u32, usize> = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.slots.strong_count() > 0) {
            *leaving.entry(entry.chunk).or_default() += entry.bytes;
        }
        let (mut chunks, mut sum) = (HashSet::new(), 0);
        for chunk in self.arena.sparsest_chunks() {
            if sum >= wanted {
                break;
            }
            if chunk.used <= leaving.get(&chunk.number).copied().unwrap_or(0) {
                chunks.insert(chunk.number);
                sum += chunk.bytes as u64;
            }
        }
        chunks
    }

    /// Removes the blocks of dropped tables from the cache, for example after a store with a shared
    /// budget was closed.
    pub fn remove_dropped(&self) {
        let mut entries = self.entries.lock().ignore_poison();
        entries.retain(|entry| {
            let is_live = entry.slots.strong_count() > 0;
            if !is_live {
                self.held_bytes.fetch_sub(entry.bytes as u64, Ordering::Relaxed);
            }
            is_live
        });
    }

    /// Bytes of the chunks for blocks, and bytes of the chunks for pinned parts of tables.
    pub fn chunk_bytes(&self) -> [ArenaUsage; 2] {
        [self.arena.bytes(), self.pinned_arena.bytes()]
    }

    fn evict(&self, entries: &mut VecDeque<ClockEntry>) {
        // Blocks that wait for readers are evicted already: another eviction cannot free them.
        let (mut held, capacity) = (self.held_bytes.load(Ordering::Relaxed), self.capacity());
        // Two rounds clear every mark and then find a block to evict.
        let mut steps = entries.len() * 2;
        while held > capacity && steps > 0 {
            steps -= 1;
            let Some(entry) = entries.pop_front() else { break };
            if let Some(slots) = entry.slots.upgrade() {
                if slots.take_touched(entry.block) {
                    entries.push_back(entry);
                    continue;
                }
                slots.evict(entry.block);
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            held = self.held_bytes.fetch_sub(entry.bytes as u64, Ordering::Relaxed)
                - entry.bytes as u64;
        }
        self.note_cursors();
    }

    /// Bytes in the cache, including blocks of dropped tables that the hand has not passed yet and
    /// evicted blocks that readers still use.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed) + self.arena.epochs().retired_bytes()
    }

    /// Number of blocks loaded into the cache, and number of blocks evicted.
    pub fn turnover(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::Relaxed), self.evicted.load(Ordering::Relaxed))
    }
}

impl BlockCache for ClockCache {
    fn arena(&self) -> Arena {
        self.arena.clone()
    }

    fn pinned_arena(&self, _arena: &Arena) -> Arena {
        self.pinned_arena.clone()
    }

    fn on_block_read(&self, _bytes: usize) -> bool {
        let epochs = self.arena.epochs();
        if epochs.retired_bytes() == 0 {
            return true;
        }
        epochs.collect();
        // A slow reader keeps every block that was evicted since it came. Blocks loaded meanwhile
        // must not evict ever more of them.
        epochs.retired_bytes() <= (self.capacity() / 4).max(PENDING_BYTES_MIN)
    }

    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize) {
        self.admitted.fetch_add(1, Ordering::Relaxed);
        // Where it is evicted already, any chunk will do: its entry goes when the hand passes.
        let chunk = slots.chunk(block).unwrap_or(u32::MAX);
        let mut entries = self.entries.lock().ignore_poison();
        entries.push_back(ClockEntry { slots: Arc::downgrade(slots), block, chunk, bytes });
        self.held_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.evict(&mut entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use umbel_base::{Cursor, ValueKind};
    use umbel_env::Access;
    use umbel_sim::Sim;
    use umbel_table::{Table, TableBuilder, TableHasher, TableOptions};

    const KEYS: u64 = 20_000;

    fn table(cache: &Arc<ClockCache>) -> Arc<Table> {
        let files = Sim::new(1).env().files;
        let path = Path::new("/table");
        let hasher = TableHasher::keyed([5; 16], 3);
        let options = TableOptions { block_bytes: 4096, bloom_bits: -1, ..TableOptions::default() };
        let file = files.create(path).unwrap();
        let mut builder = TableBuilder::new(file, 1, hasher, options);
        for number in 0..KEYS {
            builder.add(&number.to_be_bytes(), 1, ValueKind::Put, &[7; 400]).unwrap();
        }
        let meta = builder.finish().unwrap();
        let file = files.open(path, Access::Read).unwrap();
        let cache = Arc::<ClockCache>::clone(cache);
        Arc::new(Table::open(file, &meta, Some(&hasher), cache).unwrap())
    }

    #[test]
    fn chunk_with_pinned_block_is_not_evicted() {
        let cache = Arc::new(ClockCache::new(64 << 20, Arc::default()));
        let table = table(&cache);
        let mut holder = table.cursor(true);
        holder.seek_to_first().unwrap();
        let read_all = || {
            let mut cursor = table.cursor(true);
            cursor.seek_to_first().unwrap();
            while cursor.valid() {
                cursor.next().unwrap();
            }
        };
        read_all();
        let full = cache.chunk_bytes()[0];
        assert!(full.reserved > 8 << 20, "{full:?}");
        cache.release_chunks(0);
        let held = cache.chunk_bytes()[0];
        assert!(held.reserved <= 4 << 20, "pinned chunks, and one empty spare chunk: {held:?}");
        assert_eq!(cache.held_bytes(), 0, "an evicted block that is still pinned is not counted");
        read_all();
        let before = cache.turnover().1;
        cache.release_chunks(0);
        let evicted = cache.turnover().1 - before;
        assert!(evicted > 1000, "the other chunks are emptied: {evicted}");
        let left = cache.held_bytes();
        assert!(left > 0, "the blocks next to the pinned one stay");
        cache.release_chunks(0);
        assert_eq!((cache.held_bytes(), cache.turnover().1), (left, before + evicted));
        drop(holder);
    }
}
