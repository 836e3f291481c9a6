//! Counters that cost the reader next to nothing: each thread adds to a stripe of its own.
//!
//! A stripe is read, changed and stored without a locked instruction. That is exact while at most
//! [`STRIPES`] threads read; beyond, two threads on one stripe may lose a count now and then.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use umbel_base::limits::LEVELS;

/// How many threads count exactly.
pub const STRIPES: usize = 64;

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn stripe() -> usize {
    STRIPE.with(|cell| {
        let stripe = cell.get();
        if stripe != usize::MAX {
            return stripe;
        }
        let stripe = NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES;
        cell.set(stripe);
        stripe
    })
}

/// What is counted per level on reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum ReadEvent {
    /// A table's filter was asked.
    FilterProbe = 0,
    /// The filter said no.
    FilterNegative = 1,
    /// The filter said maybe, and the table did not have the key.
    FilterFalsePositive = 2,
    /// A table was searched for a key.
    TableRead = 3,
}

const EVENTS: usize = 4;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    counts: [[AtomicU64; EVENTS]; LEVELS],
    gets: AtomicU64,
    memtable_negatives: AtomicU64,
}

/// Read counters of one keyspace.
#[derive(Debug)]
pub struct ReadCounters {
    stripes: Box<[Stripe]>,
}

impl Default for ReadCounters {
    fn default() -> ReadCounters {
        ReadCounters { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }
}

#[inline]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl ReadCounters {
    /// Counts one event at a level.
    #[inline]
    pub fn count(&self, level: usize, event: ReadEvent) {
        bump(&self.stripes[stripe()].counts[level][event as usize]);
    }

    /// Counts one get.
    #[inline]
    pub fn count_get(&self) {
        bump(&self.stripes[stripe()].gets);
    }

    /// Counts one memtable whose filter said no.
    #[inline]
    pub fn count_memtable_negative(&self) {
        bump(&self.stripes[stripe()].memtable_negatives);
    }

    /// How often an event happened at a level.
    pub fn sum(&self, level: usize, event: ReadEvent) -> u64 {
        let read = |s: &Stripe| s.counts[level][event as usize].load(Ordering::Relaxed);
        self.stripes.iter().map(read).sum()
    }

    /// How many gets there were.
    pub fn gets(&self) -> u64 {
        self.stripes.iter().map(|s| s.gets.load(Ordering::Relaxed)).sum()
    }

    /// How often a memtable's filter said no.
    pub fn memtable_negatives(&self) -> u64 {
        self.stripes.iter().map(|s| s.memtable_negatives.load(Ordering::Relaxed)).sum()
    }
}

/// Write and compaction counters of one level of one keyspace.
#[derive(Debug, Default)]
pub struct LevelWork {
    /// Bytes written into the level by flushes and compactions.
    pub bytes_written: AtomicU64,
    /// Bytes of tables read by compactions into the level.
    pub bytes_read: AtomicU64,
    /// Bytes moved into the level without being rewritten.
    pub bytes_moved: AtomicU64,
    /// Compactions (at level 0: flushes) into the level.
    pub jobs: AtomicU64,
    /// Time they took, in microseconds.
    pub micros: AtomicU64,
    /// Entries they read.
    pub entries_in: AtomicU64,
    /// Entries they dropped.
    pub entries_dropped: AtomicU64,
}

/// Counters of one keyspace.
#[derive(Debug, Default)]
pub struct KeyspaceCounters {
    /// What reads did.
    pub reads: ReadCounters,
    /// What flushes and compactions did, per level.
    pub work: [LevelWork; LEVELS],
    /// Bytes of keys and values written by the user.
    pub user_bytes: AtomicU64,
}

/// Counters of the store.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Batches and single writes committed.
    pub commits: AtomicU64,
    /// Groups they were committed in.
    pub commit_groups: AtomicU64,
    /// Bytes of records in the write-ahead log.
    pub log_bytes: AtomicU64,
    /// Bytes of tables that compactions read or moved.
    pub bytes_compacted: AtomicU64,
    /// Syncs of the write-ahead log.
    pub log_syncs: AtomicU64,
    /// Time writers were held back, in microseconds.
    pub stall_micros: AtomicU64,
    /// How often a writer was held back.
    pub stalls: AtomicU64,
}

/// Adds without caring for order.
#[inline]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Reads without caring for order.
#[inline]
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_threads_add_up() {
        let counters = ReadCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counters.count(2, ReadEvent::FilterProbe);
                        counters.count_get();
                    }
                });
            }
        });
        assert_eq!(counters.sum(2, ReadEvent::FilterProbe), 4000);
        assert_eq!(counters.sum(1, ReadEvent::FilterProbe), 0);
        assert_eq!(counters.gets(), 4000);
    }
}
