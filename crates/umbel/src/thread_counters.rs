//! Counters that cost the reader next to nothing: each thread adds to a stripe of its own.
//!
//! A stripe is read, changed and stored without a locked instruction. A thread gives its stripe
//! back when it ends. Where more threads read than there are stripes, those that came last share
//! one, and add to it with locked instructions: the sums are exact however many there are.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::limits::LEVELS;

use crate::compaction::stream::StreamCounts;

/// One stripe for each of the bits of a word, the last of them shared.
const STRIPES: usize = 64;
/// The stripe of all threads that found no other free.
const SHARED: usize = STRIPES - 1;
/// What a thread's stripe is before it has one.
const NONE: usize = usize::MAX;

/// Which stripes are taken, a bit each.
static TAKEN: AtomicU64 = AtomicU64::new(1 << SHARED);

/// What a thread counts with. Has no destructor, so that reading it checks nothing.
struct Own {
    stripe: Cell<usize>,
    /// Blocks that the thread loaded into the cache.
    loads: Cell<u64>,
}

thread_local! {
    static OWN: Own = const { Own { stripe: Cell::new(NONE), loads: Cell::new(0) } };
    static SEAT: Seat = Seat::take();
}

/// Gives a thread's stripe back when the thread ends.
struct Seat {
    stripe: usize,
}

impl Seat {
    fn take() -> Seat {
        let take = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        // Acquire, and release where it is given back: the next owner sees the last one's counts.
        let stripe = match TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, take) {
            Ok(before) => before.trailing_ones() as usize,
            Err(_) => SHARED,
        };
        Seat { stripe }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.stripe != SHARED {
            // Another destructor of this thread may read yet.
            OWN.with(|own| own.stripe.set(SHARED));
            TAKEN.fetch_and(!(1 << self.stripe), Ordering::Release);
        }
    }
}

#[cold]
fn take_stripe(own: &Own) -> usize {
    let stripe = SEAT.try_with(|seat| seat.stripe).unwrap_or(SHARED);
    own.stripe.set(stripe);
    stripe
}

/// Notes that this thread loaded a block into the cache.
pub fn note_load() {
    OWN.with(|own| own.loads.set(own.loads.get() + 1));
}

/// How a table answered when it was asked for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum TableAnswer {
    /// Its filter said no.
    Refused = 0,
    /// Its filter said maybe, and it had the key.
    Found = 1,
    /// Its filter said maybe, and it did not have the key.
    Mistaken = 2,
    /// It was searched without a filter, and had the key.
    Unfiltered = 3,
    /// It was searched without a filter, and did not have the key.
    Missed = 4,
}

impl TableAnswer {
    /// How a table answered that was searched.
    #[inline]
    pub fn of_search(found: bool, filtered: bool) -> TableAnswer {
        match (found, filtered) {
            (true, true) => TableAnswer::Found,
            (false, true) => TableAnswer::Mistaken,
            (true, false) => TableAnswer::Unfiltered,
            (false, false) => TableAnswer::Missed,
        }
    }
}

/// What is known per level of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEvent {
    /// A table's filter was asked.
    FilterProbe,
    /// The filter said no.
    FilterNegative,
    /// The filter said maybe, and the table did not have the key.
    FilterFalsePositive,
    /// A table was searched for a key.
    TableRead,
    /// A table was asked for a key that it does not have, with a filter or without.
    Absent,
    /// A table was searched for a key that it does not have, with a filter or without.
    FalseRead,
}

impl ReadEvent {
    /// The answers that were such events.
    fn answers(self) -> &'static [TableAnswer] {
        use TableAnswer::{Found, Missed, Mistaken, Refused, Unfiltered};
        match self {
            ReadEvent::FilterProbe => &[Refused, Found, Mistaken],
            ReadEvent::FilterNegative => &[Refused],
            ReadEvent::FilterFalsePositive => &[Mistaken],
            ReadEvent::TableRead => &[Found, Mistaken, Unfiltered, Missed],
            ReadEvent::Absent => &[Refused, Mistaken, Missed],
            ReadEvent::FalseRead => &[Mistaken, Missed],
        }
    }
}

const ANSWERS: usize = 5;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    answers: [[AtomicU64; ANSWERS]; LEVELS],
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

/// The stripe of the thread that asked for it.
#[derive(Debug, Clone, Copy)]
pub struct OwnCounters<'a> {
    stripe: &'a Stripe,
    is_shared: bool,
    loads_before: u64,
}

impl OwnCounters<'_> {
    #[inline]
    fn bump(&self, counter: &AtomicU64, amount: u64) {
        if self.is_shared {
            counter.fetch_add(amount, Ordering::Relaxed);
        } else {
            counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        }
    }

    /// Counts how tables of a level answered, `times` the same. REQUIRES: `level < LEVELS`.
    #[inline]
    pub fn count(&self, level: usize, answer: TableAnswer, times: u64) {
        self.bump(&self.stripe.answers[level][answer as usize], times);
    }

    /// Counts gets.
    #[inline]
    pub fn count_gets(&self, gets: usize) {
        self.bump(&self.stripe.gets, gets as u64);
    }

    /// Counts one memtable whose filter said no.
    #[inline]
    pub fn count_memtable_negative(&self) {
        self.bump(&self.stripe.memtable_negatives, 1);
    }

    /// Counts the blocks that the thread loaded since it asked for its counters or called
    /// [`OwnCounters::skip_loads`]: call it when a get is done, and before a value is lent.
    #[inline]
    pub fn count_loads(&self) {
        let loads = OWN.with(|own| own.loads.get());
        if loads != self.loads_before {
            self.bump(&self.stripe.get_loads, loads.wrapping_sub(self.loads_before));
        }
    }

    /// Leaves out the blocks that were loaded so far: after a value was lent, because whoever it
    /// was lent to may have read on his own.
    #[inline]
    pub fn skip_loads(&mut self) {
        self.loads_before = OWN.with(|own| own.loads.get());
    }
}

impl ReadCounters {
    /// Those of the calling thread. REQUIRES: they stay in it.
    #[inline]
    pub fn own(&self) -> OwnCounters<'_> {
        OWN.with(|own| {
            let mut stripe = own.stripe.get();
            if stripe == NONE {
                stripe = take_stripe(own);
            }
            OwnCounters {
                stripe: &self.stripes[stripe % STRIPES],
                is_shared: stripe == SHARED,
                loads_before: own.loads.get(),
            }
        })
    }

    fn sum_of(&self, read: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.stripes.iter().map(|stripe| read(stripe).load(Ordering::Relaxed)).sum()
    }

    /// How often an event happened at a level.
    pub fn sum(&self, level: usize, event: ReadEvent) -> u64 {
        let answers = event.answers().iter();
        answers.map(|&answer| self.sum_of(|s| &s.answers[level][answer as usize])).sum()
    }

    /// How many gets there were.
    pub fn gets(&self) -> u64 {
        self.sum_of(|stripe| &stripe.gets)
    }

    /// How often a memtable's filter said no.
    pub fn memtable_negatives(&self) -> u64 {
        self.sum_of(|stripe| &stripe.memtable_negatives)
    }

    /// How many blocks gets had to load into the cache.
    pub fn get_loads(&self) -> u64 {
        self.sum_of(|stripe| &stripe.get_loads)
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
    /// Entries that they kept behind a newer version of the key, for a reader that sees them still.
    pub versions_kept: AtomicU64,
    /// Bytes of the keys and values of these.
    pub version_bytes_kept: AtomicU64,
}

impl LevelWork {
    /// Notes what became of the entries of a flush or compaction.
    pub fn note_dropped(&self, counts: &StreamCounts) {
        add(&self.entries_dropped, counts.dropped());
        add(&self.versions_kept, counts.kept_behind);
        add(&self.version_bytes_kept, counts.kept_behind_bytes);
    }
}

/// Counters of one keyspace. Apart from what stands beside them, because writers change some of
/// them with each write.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct KeyspaceCounters {
    /// What flushes and compactions did, per level.
    pub work: [LevelWork; LEVELS],
    /// Bytes of keys and values written by the user.
    pub user_bytes: AtomicU64,
}

/// Counters of the store. Apart from what stands beside them, because writers change them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct StoreCounters {
    /// Batches and single writes committed.
    pub commits: AtomicU64,
    /// Groups they were committed in.
    pub commit_groups: AtomicU64,
    /// Bytes of records in the write-ahead log.
    pub log_bytes: AtomicU64,
    /// Bytes of files written for long values, those of commits that were refused included.
    pub blob_bytes: AtomicU64,
    /// Bytes of tables that compactions read or moved.
    pub bytes_compacted: AtomicU64,
    /// Blocks that compactions loaded in the place of cached ones.
    pub blocks_carried: AtomicU64,
    /// Bytes of tables that were written past the page cache.
    pub bytes_direct: AtomicU64,
    /// Bytes of tables that were written through the page cache.
    pub bytes_buffered: AtomicU64,
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

/// Adds to a counter that one thread at a time adds to, which takes no locked instruction.
/// REQUIRES: the lock under which alone it changes.
#[inline]
pub fn add_alone(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
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
        // More threads than stripes at a time, and more one after the other.
        for round in 1..=3 {
            let (arrived, gate) = (AtomicU64::new(0), std::sync::RwLock::new(()));
            std::thread::scope(|scope| {
                // Where a thread cannot be started this is dropped, and the others do not wait.
                let shut = gate.write();
                for _ in 0..STRIPES + 6 {
                    scope.spawn(|| {
                        counters.own().count_gets(1);
                        arrived.fetch_add(1, Ordering::Relaxed);
                        drop(gate.read());
                        for _ in 0..100 {
                            let own = counters.own();
                            own.count_gets(2);
                            own.count(2, TableAnswer::Found, 1);
                            own.count(2, TableAnswer::Refused, 1);
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
    fn loads_count_for_the_gets_during_which_they_happened() {
        let counters = ReadCounters::default();
        note_load();
        let own = counters.own();
        note_load();
        note_load();
        own.count_loads();
        note_load();
        let mut later = counters.own();
        later.count_loads();
        assert_eq!(counters.get_loads(), 2);
        note_load();
        later.skip_loads();
        later.count_loads();
        assert_eq!(counters.get_loads(), 2);
    }
}
