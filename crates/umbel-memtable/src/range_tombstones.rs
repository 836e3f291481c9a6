//! The memtable's range tombstones: a list that only grows, read without a lock, and fragments cut
//! from its beginning.
//!
//! Fragments are in runs of consecutive tombstones. A run is joined with the run before it if that
//! has at most [`RUN_RATIO`] times as many tombstones. So `n` tombstones are in `O(log n)` runs,
//! and each is cut `O(log n)` times (the logarithmic method of Bentley and Saxe, 1980). The newest
//! tombstones are in no run, and a point read searches them one by one.

use arc_swap::ArcSwap;
use std::array;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{FragmentedTombstones, RangeTombstoneRef, SequenceNumber};

/// Number of tombstones in the first chunk; each further chunk has twice as many as the one before.
const CHUNK_FIRST: usize = 4;
/// Number of chunks, which suffices for as many tombstones as 32 bits can count.
const CHUNKS: usize = 30;
/// Up to this number of tombstones that are not cut yet, a point read searches them one by one.
const UNFRAGMENTED_MAX: usize = 8;
/// A run is not joined with later tombstones if it has more than this multiple of their number.
const RUN_RATIO: usize = 2;

/// A tombstone with both keys in one allocation.
struct StoredTombstone {
    /// The start key, followed by the end key.
    keys: Box<[u8]>,
    start_bytes: u32,
    sequence: SequenceNumber,
}

impl StoredTombstone {
    /// Copies a tombstone. REQUIRES: the start key is shorter than 4 GiB.
    fn new(tombstone: RangeTombstoneRef<'_>) -> StoredTombstone {
        let RangeTombstoneRef { start, end, sequence } = tombstone;
        let keys = [start, end].concat().into_boxed_slice();
        StoredTombstone { keys, start_bytes: start.len() as u32, sequence }
    }

    fn get(&self) -> RangeTombstoneRef<'_> {
        let (start, end) = self.keys.split_at(self.start_bytes as usize);
        RangeTombstoneRef { start, end, sequence: self.sequence }
    }
}

/// Consecutive tombstones, cut into fragments.
#[derive(Clone)]
struct TombstoneRun {
    /// Number of the first tombstone.
    first: usize,
    fragments: Arc<FragmentedTombstones>,
}

/// All runs. Together they have the first `count` tombstones.
#[derive(Default)]
struct RangeTombstoneRuns {
    count: usize,
    runs: Vec<TombstoneRun>,
}

/// A growing set of range tombstones.
pub(crate) struct RangeTombstones {
    chunks: [OnceLock<Box<[OnceLock<StoredTombstone>]>>; CHUNKS],
    /// Number of tombstones. INVARIANT: all tombstones with lower numbers are in the chunks.
    count: AtomicUsize,
    memory_bytes: AtomicUsize,
    writer: Mutex<()>,
    /// Lock of the thread that cuts tombstones into fragments.
    fragmenting: Mutex<()>,
    fragmented: ArcSwap<RangeTombstoneRuns>,
    /// Memory of all runs.
    fragment_bytes: AtomicUsize,
}

/// Returns the number of a tombstone's chunk, and its index in the chunk.
fn locate(number: usize) -> (usize, usize) {
    let chunk = (number / CHUNK_FIRST + 1).ilog2() as usize;
    (chunk, number - CHUNK_FIRST * ((1 << chunk) - 1))
}

impl RangeTombstones {
    /// Creates a set without tombstones.
    pub(crate) fn new() -> RangeTombstones {
        RangeTombstones {
            chunks: array::from_fn(|_| OnceLock::new()),
            count: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(size_of::<RangeTombstones>()),
            writer: Mutex::new(()),
            fragmenting: Mutex::new(()),
            fragmented: ArcSwap::default(),
            fragment_bytes: AtomicUsize::new(0),
        }
    }

    /// Adds a tombstone, and returns the bytes that it takes. REQUIRES: the tombstone is within the
    /// limits of `umbel_base::limits`.
    pub(crate) fn push(&self, tombstone: RangeTombstoneRef<'_>) -> usize {
        let key_bytes = tombstone.start.len() + tombstone.end.len();
        let _writer = self.writer.lock().ignore_poison();
        let number = self.count.load(Ordering::Relaxed);
        let (chunk, at) = locate(number);
        let mut memory_bytes = key_bytes;
        let slots = self.chunks[chunk].get_or_init(|| {
            let slots: Box<[_]> = (0..CHUNK_FIRST << chunk).map(|_| OnceLock::new()).collect();
            memory_bytes += size_of_val(&*slots);
            slots
        });
        let stored = slots[at].set(StoredTombstone::new(tombstone)).is_ok();
        assert!(stored, "no number is given twice");
        self.memory_bytes.fetch_add(memory_bytes, Ordering::Relaxed);
        self.count.store(number + 1, Ordering::Release);
        size_of::<StoredTombstone>() + key_bytes
    }

    /// Bytes of memory that the tombstones and fragments take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed) + self.fragment_bytes.load(Ordering::Relaxed)
    }

    /// Returns the tombstones, oldest first, including at least those whose `push` happened before
    /// this call.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RangeTombstoneRef<'_>> + Clone {
        (0..self.count.load(Ordering::Acquire)).map(|number| self.at(number))
    }

    /// Returns the tombstone with this number. REQUIRES: `number < count`.
    fn at(&self, number: usize) -> RangeTombstoneRef<'_> {
        let (chunk, at) = locate(number);
        let slot = self.chunks[chunk].get().and_then(|slots| slots[at].get());
        slot.expect("every number below the count was given").get()
    }

    /// Returns the newest tombstone over `key` that a reader at `sequence` sees. The search
    /// includes at least the tombstones whose `push` happened before this call.
    pub(crate) fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        let count = self.count.load(Ordering::Acquire);
        let mut fragmented = self.fragmented.load();
        if count.saturating_sub(fragmented.count) > UNFRAGMENTED_MAX {
            // While another thread cuts, this one searches the rest one by one.
            self.fragment_unless_busy(count);
            fragmented = self.fragmented.load();
        }
        let in_runs =
            fragmented.runs.iter().filter_map(|run| run.fragments.covering(key, sequence));
        let covers =
            |t: &RangeTombstoneRef<'_>| t.sequence <= sequence && t.start <= key && key < t.end;
        let uncut = (fragmented.count..count).map(|number| self.at(number)).filter(covers);
        uncut.map(|tombstone| tombstone.sequence).max().max(in_runs.max())
    }

    /// Adds the fragments of at least those tombstones whose `push` happened before this call.
    ///
    /// While another thread cuts, the caller waits if `may_wait`, and otherwise cuts for itself.
    pub(crate) fn add_fragments(&self, to: &mut Vec<Arc<FragmentedTombstones>>, may_wait: bool) {
        let count = self.count.load(Ordering::Acquire);
        let mut fragmented = self.fragmented.load();
        if fragmented.count < count {
            if may_wait {
                let _cutting = self.fragmenting.lock().ignore_poison();
                self.fragment(count);
            } else {
                self.fragment_unless_busy(count);
            }
            fragmented = self.fragmented.load();
        }
        if fragmented.count < count {
            let rest = (fragmented.count..count).map(|number| self.at(number));
            to.push(Arc::new(FragmentedTombstones::new(rest)));
        }
        to.extend(fragmented.runs.iter().map(|run| Arc::clone(&run.fragments)));
    }

    /// Cuts the first `count` tombstones or more, unless another thread cuts.
    fn fragment_unless_busy(&self, count: usize) {
        match self.fragmenting.try_lock() {
            Ok(_cutting) => self.fragment(count),
            Err(TryLockError::Poisoned(_)) => self.fragment(count),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Cuts at least the first `count` tombstones into fragments, during which the writer does not
    /// wait.
    /// REQUIRES: the caller holds `fragmenting`.
    fn fragment(&self, count: usize) {
        let fragmented = self.fragmented.load();
        // Another reader may have been faster.
        if fragmented.count >= count {
            return;
        }
        let mut runs = fragmented.runs.clone();
        let mut first = fragmented.count;
        while let Some(last) = runs.pop_if(|run| first - run.first <= RUN_RATIO * (count - first)) {
            first = last.first;
        }
        let fragments = FragmentedTombstones::new((first..count).map(|number| self.at(number)));
        runs.push(TombstoneRun { first, fragments: Arc::new(fragments) });
        let bytes = runs.iter().map(|run| run.fragments.memory_bytes()).sum();
        self.fragment_bytes.store(bytes, Ordering::Relaxed);
        self.fragmented.store(Arc::new(RangeTombstoneRuns { count, runs }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstones_are_in_few_runs_however_often_they_are_cut() {
        for cut_each in [1, 3, 100] {
            let tombstones = RangeTombstones::new();
            for number in 0..5_000_u32 {
                let (start, end) = (number.to_be_bytes(), (number + 1).to_be_bytes());
                let (start, end, sequence) = (&start, &end, u64::from(number) + 1);
                tombstones.push(RangeTombstoneRef { start, end, sequence });
                if number % cut_each == 0 {
                    tombstones.fragment(number as usize + 1);
                }
            }
            tombstones.fragment(5_000);
            let fragmented = tombstones.fragmented.load();
            assert!(fragmented.runs.len() <= 13, "{} runs", fragmented.runs.len());
            assert_eq!(fragmented.count, 5_000);
            assert_eq!(tombstones.covering(&77_u32.to_be_bytes(), 78), Some(78));
            assert_eq!(tombstones.covering(&77_u32.to_be_bytes(), 77), None);
            assert!(tombstones.memory_bytes() > 5_000 * size_of::<StoredTombstone>());
        }
    }

    /// Each cursor beside one that cut 100,000 tombstones cut them for itself, too, and held its
    /// own copy.
    #[test]
    fn threads_share_one_cut() {
        let tombstones = RangeTombstones::new();
        for number in 0..10_000_u32 {
            let (start, end) = (number.to_be_bytes(), (20_000 - number).to_be_bytes());
            let (start, end, sequence) = (&start, &end, u64::from(number) + 1);
            tombstones.push(RangeTombstoneRef { start, end, sequence });
        }
        let cut = |may_wait| {
            let mut parts = Vec::new();
            tombstones.add_fragments(&mut parts, may_wait);
            parts
        };
        let held = tombstones.fragmenting.lock().unwrap();
        let alone = cut(false);
        let parts = std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| cut(true))).collect();
            drop(held);
            waiting.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(parts.iter().all(|part| part.len() == 1 && Arc::ptr_eq(&part[0], &parts[0][0])));
        assert!(alone.len() == 1 && !Arc::ptr_eq(&alone[0], &parts[0][0]));
        assert_eq!(alone[0].len(), parts[0][0].len());
    }

    #[test]
    fn positions_are_consecutive() {
        let mut expected = (0, 0);
        for number in 0..1_000 {
            assert_eq!(locate(number), expected);
            expected.1 += 1;
            if expected.1 == CHUNK_FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(locate(u32::MAX as usize - CHUNK_FIRST).0 < CHUNKS);
    }
}
