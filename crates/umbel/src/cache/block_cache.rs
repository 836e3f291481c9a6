//! The block cache: blocks live in their table's slots; this module only decides who leaves.
//!
//! Reading a cached block asks nothing of the cache. A block that was loaded is put on a clock;
//! when the clock holds more bytes than it may, its hand passes over the slots, spares once each
//! block that was touched since the last pass, and empties the first that was not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use umbel_arena::{Arena, ArenaBytes};
use umbel_table::{BlockCache, BlockSlots};

use crate::cursor_memory::CursorMemory;

/// So much may wait for readers even in the smallest cache.
const WAITING_BYTES_LEAST: u64 = 64 << 10;

#[derive(Debug)]
struct Seat {
    slots: Weak<BlockSlots>,
    block: u32,
    /// The arena's chunk that the block lies in.
    chunk: u32,
    bytes: usize,
}

/// A clock over the cached blocks of all tables of a store, or of the stores that share a budget.
#[derive(Debug)]
pub struct ClockCache {
    capacity: AtomicU64,
    held: AtomicU64,
    admitted: AtomicU64,
    evicted: AtomicU64,
    seats: Mutex<VecDeque<Seat>>,
    /// Where all tables of the store have their blocks and parts of indexes that come and go.
    arena: Arena,
    /// Where they have their indexes and slots, which stay while a table is open.
    arena_of_what_stays: Arena,
    /// What cursors hold, blocks that left their slots among it.
    cursors: Arc<CursorMemory>,
}

impl ClockCache {
    /// A cache that holds about `capacity` bytes of blocks, and counts with `cursors` those that
    /// cursors hold past their slots.
    pub fn new(capacity: u64, cursors: Arc<CursorMemory>) -> ClockCache {
        ClockCache {
            cursors,
            capacity: AtomicU64::new(capacity),
            held: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            seats: Mutex::default(),
            arena: Arena::new(),
            arena_of_what_stays: Arena::new(),
        }
    }

    /// What cursors hold.
    pub fn cursors(&self) -> &Arc<CursorMemory> {
        &self.cursors
    }

    /// Notes the bytes of blocks that left their slots, and are in memory only because a cursor
    /// stands in them.
    pub fn note_cursors(&self) {
        let used = self.arena.bytes().used as u64;
        self.cursors.note_blocks(used.saturating_sub(self.held()));
    }

    /// Bytes it may hold.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes how many bytes it may hold. What is too much leaves at once.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        if self.held() > capacity {
            self.make_room(&mut self.seats.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Gives back chunks of the arena until it holds `most` bytes at most, and some more, so that
    /// this is seldom needed: blocks leave whether they were read or not, those in the chunks of
    /// which the least is used. A chunk stays with all that is in it where somebody holds a piece
    /// of it past its slot, a cursor for example: emptying it would free nothing, each time again.
    pub fn give_back(&self, most: u64) {
        let excess = (self.arena.bytes().held as u64).saturating_sub(most);
        if excess == 0 {
            return;
        }
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = self.chunks_to_empty(&seats, excess + most / 16);
        seats.retain(|seat| {
            if !chunks.contains(&seat.chunk) {
                return true;
            }
            if let Some(slots) = seat.slots.upgrade() {
                slots.evict(seat.block);
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            self.held.fetch_sub(seat.bytes as u64, Ordering::Relaxed);
            false
        });
        drop(seats);
        self.arena.epochs().collect();
    }

    /// Chunks, `wanted` bytes long together where there are as many, that are empty once the blocks
    /// in them have left their slots.
    fn chunks_to_empty(&self, seats: &VecDeque<Seat>, wanted: u64) -> HashSet<u32> {
        let mut leaving: HashMap<u32, usize> = HashMap::new();
        for seat in seats.iter().filter(|seat| seat.slots.strong_count() > 0) {
            *leaving.entry(seat.chunk).or_default() += seat.bytes;
        }
        let (mut chunks, mut sum) = (HashSet::new(), 0);
        for chunk in self.arena.emptiest() {
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

    /// Forgets the blocks of tables that were dropped, as when a store of a shared budget was.
    pub fn forget_dropped(&self) {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.retain(|seat| {
            let is_there = seat.slots.strong_count() > 0;
            if !is_there {
                self.held.fetch_sub(seat.bytes as u64, Ordering::Relaxed);
            }
            is_there
        });
    }

    /// Bytes of the chunks that blocks take, and of those that what stays of tables takes.
    pub fn chunk_bytes(&self) -> [ArenaBytes; 2] {
        [self.arena.bytes(), self.arena_of_what_stays.bytes()]
    }

    fn make_room(&self, seats: &mut VecDeque<Seat>) {
        // What waits for readers has left already: making room cannot bring it back.
        let (mut held, capacity) = (self.held.load(Ordering::Relaxed), self.capacity());
        // Two rounds clear every mark and then find somebody to go.
        let mut steps = seats.len() * 2;
        while held > capacity && steps > 0 {
            steps -= 1;
            let Some(seat) = seats.pop_front() else { break };
            if let Some(slots) = seat.slots.upgrade() {
                if slots.take_touched(seat.block) {
                    seats.push_back(seat);
                    continue;
                }
                slots.evict(seat.block);
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            held = self.held.fetch_sub(seat.bytes as u64, Ordering::Relaxed) - seat.bytes as u64;
        }
        self.note_cursors();
    }

    /// Bytes it holds, blocks of dropped tables included until the hand passes them, and evicted
    /// ones until their readers have left.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed) + self.arena.epochs().waiting_bytes()
    }

    /// Blocks that were loaded into it, and blocks that had to leave.
    pub fn turnover(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::Relaxed), self.evicted.load(Ordering::Relaxed))
    }
}

impl BlockCache for ClockCache {
    fn arena(&self) -> Arena {
        self.arena.clone()
    }

    fn arena_of_what_stays(&self, _arena: &Arena) -> Arena {
        self.arena_of_what_stays.clone()
    }

    fn loaded(&self, _bytes: usize) -> bool {
        let epochs = self.arena.epochs();
        if epochs.waiting_bytes() == 0 {
            return true;
        }
        epochs.collect();
        // A reader that takes its time keeps every block that was evicted since it came. What is
        // loaded meanwhile must not push out ever more of them.
        epochs.waiting_bytes() <= (self.capacity() / 4).max(WAITING_BYTES_LEAST)
    }

    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize) {
        self.admitted.fetch_add(1, Ordering::Relaxed);
        // Where it has left again already, any will do: its seat goes when the hand passes.
        let chunk = slots.chunk(block).unwrap_or(u32::MAX);
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.push_back(Seat { slots: Arc::downgrade(slots), block, chunk, bytes });
        self.held.fetch_add(bytes as u64, Ordering::Relaxed);
        self.make_room(&mut seats);
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
    fn a_chunk_that_somebody_holds_a_piece_of_is_not_emptied_in_vain() {
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
        assert!(full.held > 8 << 20, "{full:?}");
        cache.give_back(0);
        let held = cache.chunk_bytes()[0];
        assert!(held.held <= 4 << 20, "what is held, and an empty one that is kept: {held:?}");
        assert_eq!(cache.held(), 0, "that something is held past its slot shows only now");
        read_all();
        let before = cache.turnover().1;
        cache.give_back(0);
        let evicted = cache.turnover().1 - before;
        assert!(evicted > 1000, "the other chunks are emptied: {evicted}");
        let left = cache.held();
        assert!(left > 0, "the blocks around the held one stay");
        cache.give_back(0);
        assert_eq!((cache.held(), cache.turnover().1), (left, before + evicted));
        drop(holder);
    }
}
