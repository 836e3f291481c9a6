//! Counters that cost a reader next to nothing: each thread adds to a stripe of its own.
//!
//! A thread changes its own stripe without a locked instruction, and frees the stripe when it ends.
//! If there are more reading threads than stripes, the latest threads share one stripe. Threads add
//! to the shared stripe with locked instructions, so that sums are exact for any number of threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::limits::LEVELS;

use crate::compaction::compaction_stream::StreamCounts;

/// Number of stripes: one for each bit of a word. The last stripe is shared.
const STRIPES: usize = 64;
/// Stripe of all threads that found no free stripe.
const SHARED_STRIPE: usize = STRIPES - 1;
/// Stripe number of a thread that has no stripe yet.
const NO_STRIPE: usize = usize::MAX;

/// Set of taken stripes, one bit each.
static TAKEN_STRIPES: AtomicU64 = AtomicU64::new(1 << SHARED_STRIPE);

/// Counting state of a thread. The type has no destructor, so that an access needs no check.
struct ThreadCounters {
    stripe: Cell<usize>,
    /// Number of blocks that the thread loaded into the block cache.
    loads: Cell<u64>,
}

thread_local! {
    static OWN: ThreadCounters =
        const { ThreadCounters { stripe: Cell::new(NO_STRIPE), loads: Cell::new(0) } };
    static STRIPE_OWNER: StripeOwner = StripeOwner::take();
}

/// Frees a thread's stripe when the thread ends.
struct StripeOwner {
    stripe: usize,
}

impl StripeOwner {
    fn take() -> StripeOwner {
        let take = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        // Acquire here, release where it is freed: the next owner sees the previous owner's counts.
        let stripe = match TAKEN_STRIPES.fetch_update(Ordering::Acquire, Ordering::Relaxed, take) {
            Ok(before) => before.trailing_ones() as usize,
            Err(_) => SHARED_STRIPE,
        };
        StripeOwner { stripe }
    }
}

impl Drop for StripeOwner {
    fn drop(&mut self) {
        if self.stripe != SHARED_STRIPE {
            // Another destructor of this thread may still read.
            OWN.with(|own| own.stripe.set(SHARED_STRIPE));
            TAKEN_STRIPES.fetch_and(!(1 << self.stripe), Ordering::Release);
        }
    }
}

#[cold]
fn take_stripe(own: &ThreadCounters) -> usize {
    let stripe = STRIPE_OWNER.try_with(|owner| owner.stripe).unwrap_or(SHARED_STRIPE);
    own.stripe.set(stripe);
    stripe
}

/// Counts a block that this thread loaded into the block cache.
pub fn note_load() {
    OWN.with(|own| own.loads.set(own.loads.get() + 1));
}

/// Result of a table's search for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum ProbeOutcome {
    /// The filter of the table excluded the key.
    FilterNegative = 0,
    /// The filter passed the key, and the table had it.
    FilteredHit = 1,
    /// The filter passed the key, and the table did not have it.
    FilterFalsePositive = 2,
    /// The table was searched without a filter, and had the key.
    UnfilteredHit = 3,
    /// The table was searched without a filter, and did not have the key.
    UnfilteredMiss = 4,
}

impl ProbeOutcome {
    /// Returns the outcome for a table that was searched.
    #[inline]
    pub fn of_search(found: bool, filtered: bool) -> ProbeOutcome {
        match (found, filtered) {
            (true, true) => ProbeOutcome::FilteredHit,
            (false, true) => ProbeOutcome::FilterFalsePositive,
            (true, false) => ProbeOutcome::UnfilteredHit,
            (false, false) => ProbeOutcome::UnfilteredMiss,
        }
    }
}

/// Event of reads that is counted for each level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEvent {
    /// A table's filter was probed.
    FilterProbe,
    /// The filter excluded the key.
    FilterNegative,
    /// The filter passed the key, and the table did not have it.
    FilterFalsePositive,
    /// A table was searched for a key.
    TableRead,
    /// A lookup reached a table that lacks the key, whether or not the table has a filter.
    Absent,
    /// A table was searched for a key that it lacks, whether or not the table has a filter.
    FalseRead,
}

impl ReadEvent {
    /// The probe outcomes that count as this event.
    fn outcomes(self) -> &'static [ProbeOutcome] {
        use ProbeOutcome::{
            FilterFalsePositive, FilterNegative, FilteredHit, UnfilteredHit, UnfilteredMiss,
        };
        match self {
            ReadEvent::FilterProbe => &[FilterNegative, FilteredHit, FilterFalsePositive],
            ReadEvent::FilterNegative => &[FilterNegative],
            ReadEvent::FilterFalsePositive => &[FilterFalsePositive],
            ReadEvent::TableRead => {
                &[FilteredHit, FilterFalsePositive, UnfilteredHit, UnfilteredMiss]
            }
            ReadEvent::Absent => &[FilterNegative, FilterFalsePositive, UnfilteredMiss],
            ReadEvent::FalseRead => &[FilterFalsePositive, UnfilteredMiss],
        }
    }
}

const OUTCOMES: usize = 5;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    outcomes: [[AtomicU64; OUTCOMES]; LEVELS],
    gets: AtomicU64,
    memtable_negatives: AtomicU64,
    get_loads: AtomicU64,
}

/// Read counters of one keyspace.
#[derive(Debug)]
pub struct ReadCounters {
    stripes: Box<[Stripe; STRIPES]>,
}

impl Default for ReadCounters {
    fn default() -> ReadCounters {
        ReadCounters { stripes: Box::new(std::array::from_fn(|_| Stripe::default())) }
    }
}

/// A keyspace's counters in the stripe of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct ThreadReadCounters<'a> {
    stripe: &'a Stripe,
    is_shared: bool,
    loads_before: u64,
}

impl ThreadReadCounters<'_> {
    #[inline]
    fn increment(&self, counter: &AtomicU64, amount: u64) {
        if self.is_shared {
            counter.fetch_add(amount, Ordering::Relaxed);
        } else {
            counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        }
    }

    /// Counts the outcome `answer` `times` times for tables of level `level`. REQUIRES: `level <
    /// LEVELS`.
    #[inline]
    pub fn count(&self, level: usize, answer: ProbeOutcome, times: u64) {
        self.increment(&self.stripe.outcomes[level][answer as usize], times);
    }

    /// Counts `gets` gets.
    #[inline]
    pub fn count_gets(&self, gets: usize) {
        self.increment(&self.stripe.gets, gets as u64);
    }

    /// Counts a memtable whose filter excluded the key.
    #[inline]
    pub fn count_memtable_negative(&self) {
        self.increment(&self.stripe.memtable_negatives, 1);
    }

    /// Counts the blocks that the thread loaded since it fetched its counters or called
    /// [`ThreadReadCounters::skip_loads`]. A get calls it at its end, and before it lends a value.
    #[inline]
    pub fn count_loads(&self) {
        let loads = OWN.with(|own| own.loads.get());
        if loads != self.loads_before {
            self.increment(&self.stripe.get_loads, loads.wrapping_sub(self.loads_before));
        }
    }

    /// Excludes from the counts the blocks loaded so far. A get calls it after it lent a value,
    /// because the borrower can have read as well.
    #[inline]
    pub fn skip_loads(&mut self) {
        self.loads_before = OWN.with(|own| own.loads.get());
    }
}

impl ReadCounters {
    /// Returns the counters of the calling thread. REQUIRES: they stay in that thread.
    #[inline]
    pub fn for_thread(&self) -> ThreadReadCounters<'_> {
        OWN.with(|own| {
            let mut stripe = own.stripe.get();
            if stripe == NO_STRIPE {
                stripe = take_stripe(own);
            }
            ThreadReadCounters {
                stripe: &self.stripes[stripe % STRIPES],
                is_shared: stripe == SHARED_STRIPE,
                loads_before: own.loads.get(),
            }
        })
    }

    fn sum_of(&self, read: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.stripes.iter().map(|stripe| read(stripe).load(Ordering::Relaxed)).sum()
    }

    /// Number of times that an event happened at a level.
    pub fn sum(&self, level: usize, event: ReadEvent) -> u64 {
        let answers = event.outcomes().iter();
        answers.map(|&answer| self.sum_of(|s| &s.outcomes[level][answer as usize])).sum()
    }

    /// Number of gets.
    pub fn gets(&self) -> u64 {
        self.sum_of(|stripe| &stripe.gets)
    }

    /// Number of memtables whose filter excluded the key.
    pub fn memtable_negatives(&self) -> u64 {
        self.sum_of(|stripe| &stripe.memtable_negatives)
    }

    /// Number of blocks that gets loaded into the block cache.
    pub fn get_loads(&self) -> u64 {
        self.sum_of(|stripe| &stripe.get_loads)
    }
}

/// Counters of flushes and compactions into one level of a keyspace.
#[derive(Debug, Default)]
pub struct LevelCounters {
    /// Bytes written into the level by flushes and compactions.
    pub bytes_written: AtomicU64,
    /// Bytes of tables read by compactions into the level.
    pub bytes_read: AtomicU64,
    /// Bytes moved into the level without being rewritten.
    pub bytes_moved: AtomicU64,
    /// Number of compactions into the level; at level 0, number of flushes.
    pub jobs: AtomicU64,
    /// Time of the compactions or flushes into the level, in microseconds.
    pub micros: AtomicU64,
    /// Number of entries that the compactions or flushes into the level read.
    pub entries_in: AtomicU64,
    /// Number of entries that the compactions or flushes into the level dropped.
    pub entries_dropped: AtomicU64,
    /// Number of older versions of keys that compactions or flushes kept for readers that still see
    /// them.
    pub versions_kept: AtomicU64,
    /// Bytes of the keys and values of the older versions in `versions_kept`.
    pub version_bytes_kept: AtomicU64,
}

impl LevelCounters {
    /// Counts the entries that a flush or compaction dropped or kept.
    pub fn note_dropped(&self, counts: &StreamCounts) {
        add(&self.entries_dropped, counts.dropped());
        add(&self.versions_kept, counts.versions_kept);
        add(&self.version_bytes_kept, counts.version_bytes_kept);
    }
}

/// Counters of a keyspace, in cache lines of their own, because each write changes some of these
/// counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct KeyspaceCounters {
    /// For each level, counters of flushes and compactions into it.
    pub levels: [LevelCounters; LEVELS],
    /// Bytes of keys and values that callers wrote.
    pub user_bytes: AtomicU64,
}

/// Counters of the store, in cache lines of their own, because writers change these counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct StoreCounters {
    /// Number of committed batches and single writes.
    pub commits: AtomicU64,
    /// Number of group commits.
    pub commit_groups: AtomicU64,
    /// Bytes of records written to the WAL.
    pub log_bytes: AtomicU64,
    /// Bytes of files written for long values, including those of refused commits.
    pub blob_bytes: AtomicU64,
    /// Bytes of tables that compactions read or moved.
    pub bytes_compacted: AtomicU64,
    /// Number of blocks that compactions loaded to replace cached blocks of their inputs.
    pub blocks_warmed: AtomicU64,
    /// Bytes of tables that were written past the page cache, with direct I/O.
    pub bytes_direct: AtomicU64,
    /// Bytes of tables that were written through the page cache.
    pub bytes_buffered: AtomicU64,
    /// Number of syncs of the WAL.
    pub log_syncs: AtomicU64,
    /// Time that writers stalled, in microseconds.
    pub stall_micros: AtomicU64,
    /// Number of write stalls.
    pub stalls: AtomicU64,
}

/// Adds to a counter with relaxed ordering.
#[inline]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Adds to a counter without a locked instruction. REQUIRES: the caller holds the lock that guards
/// every change of the counter.
#[inline]
pub fn add_exclusive(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// Reads a counter with relaxed ordering.
#[inline]
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_threads_are_summed() {
        let counters = ReadCounters::default();
        // More threads than stripes at a time, and more in succession.
        for round in 1..=3 {
            let (arrived, gate) = (AtomicU64::new(0), std::sync::RwLock::new(()));
            std::thread::scope(|scope| {
                // Where a thread cannot be started the guard is dropped, and the others do not
                // wait.
                let shut = gate.write();
                for _ in 0..STRIPES + 6 {
                    scope.spawn(|| {
                        counters.for_thread().count_gets(1);
                        arrived.fetch_add(1, Ordering::Relaxed);
                        drop(gate.read());
                        for _ in 0..100 {
                            let own = counters.for_thread();
                            own.count_gets(2);
                            own.count(2, ProbeOutcome::FilteredHit, 1);
                            own.count(2, ProbeOutcome::FilterNegative, 1);
                        }
                    });
                }
                while arrived.load(Ordering::Relaxed) < STRIPES as u64 + 6 {
                    std::hint::spin_loop();
                }
                drop(shut);
            });
            let threads = round * (STRIPES as u64 + 6);
            assert_eq!(counters.gets(), threads * 201);
            assert_eq!(counters.sum(2, ReadEvent::FilterProbe), threads * 200);
            assert_eq!(counters.sum(2, ReadEvent::FilterNegative), threads * 100);
            assert_eq!(counters.sum(2, ReadEvent::TableRead), threads * 100);
            assert_eq!(counters.sum(2, ReadEvent::FilterFalsePositive), 0);
            assert_eq!(counters.sum(1, ReadEvent::FilterProbe), 0);
        }
    }

    #[test]
    fn loads_are_counted_for_their_gets() {
        let counters = ReadCounters::default();
        note_load();
        let own = counters.for_thread();
        note_load();
        note_load();
        own.count_loads();
        note_load();
        let mut later = counters.for_thread();
        later.count_loads();
        assert_eq!(counters.get_loads(), 2);
        note_load();
        later.skip_loads();
        later.count_loads();
        assert_eq!(counters.get_loads(), 2);
    }
}
