//! The memtable's range tombstones: a list that only grows, read without a lock, and fragments cut
//! from its beginning.
//!
//! Cutting costs up to the square of their number, so a point read does not wait for it. Tombstones
//! after the last cut are searched one by one, and cut only once there are many.

use arc_swap::ArcSwap;
use std::array;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{FragmentedTombstones, RangeTombstone, SequenceNumber};

/// Tombstones in the first chunk; each further one has twice as many as the one before.
const CHUNK_FIRST: usize = 4;
/// Chunks for as many tombstones as 32 bits count.
const CHUNKS: usize = 30;
/// This number of tombstones that were not cut yet a point read looks through in any case.
const UNFRAGMENTED_MIN: usize = 8;

/// Fragments, and of how many tombstones they are.
#[derive(Default)]
struct FragmentSnapshot {
    count: usize,
    fragments: Arc<FragmentedTombstones>,
}

/// A growing set of range tombstones.
pub(crate) struct RangeTombstones {
    chunks: [OnceLock<Box<[OnceLock<RangeTombstone>]>>; CHUNKS],
    /// Number of tombstones. INVARIANT: those numbered below it are in the chunks.
    count: AtomicUsize,
    memory_bytes: AtomicUsize,
    writer: Mutex<()>,
    /// The thread that holds it cuts.
    fragmenting: Mutex<()>,
    snapshot: ArcSwap<FragmentSnapshot>,
}

/// The chunk of a tombstone and its place there.
fn locate(number: usize) -> (usize, usize) {
    let chunk = (number / CHUNK_FIRST + 1).ilog2() as usize;
    (chunk, number - CHUNK_FIRST * ((1 << chunk) - 1))
}

impl RangeTombstones {
    /// A set without tombstones.
    pub(crate) fn new() -> RangeTombstones {
        RangeTombstones {
            chunks: array::from_fn(|_| OnceLock::new()),
            count: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(size_of::<RangeTombstones>()),
            writer: Mutex::new(()),
            fragmenting: Mutex::new(()),
            snapshot: ArcSwap::default(),
        }
    }

    /// Adds one and returns the bytes that hold it.
    pub(crate) fn push(&self, tombstone: RangeTombstone) -> usize {
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
        slots[at].set(tombstone).expect("no number is given twice");
        self.memory_bytes.fetch_add(memory_bytes, Ordering::Relaxed);
        self.count.store(number + 1, Ordering::Release);
        size_of::<RangeTombstone>() + key_bytes
    }

    /// Memory taken, that of the fragments left out, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// The tombstone of this number. REQUIRES: `number < count`.
    fn at(&self, number: usize) -> &RangeTombstone {
        let (chunk, at) = locate(number);
        let slot = self.chunks[chunk].get().and_then(|slots| slots[at].get());
        slot.expect("every number below the count was given")
    }

    /// The newest tombstone over `key` that a reader at `sequence` sees, of at least those whose
    /// `push` happened before this call.
    pub(crate) fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        let count = self.count.load(Ordering::Acquire);
        let mut snapshot = self.snapshot.load();
        if count.saturating_sub(snapshot.count) > UNFRAGMENTED_MIN.max(snapshot.count / 4) {
            // Where another reader is at it, its work will do for the next question.
            match self.fragmenting.try_lock() {
                Ok(_cutting) => self.fragment(count),
                Err(TryLockError::Poisoned(_)) => self.fragment(count),
                Err(TryLockError::WouldBlock) => {}
            }
            snapshot = self.snapshot.load();
        }
        let cut = snapshot.fragments.covering(key, sequence);
        let covers = |t: &&RangeTombstone| {
            t.sequence <= sequence && t.start.as_slice() <= key && key < t.end.as_slice()
        };
        let uncut = (snapshot.count..count).map(|number| self.at(number)).filter(covers);
        uncut.map(|tombstone| tombstone.sequence).max().max(cut)
    }

    /// The fragments of at least those tombstones whose `push` happened before this call.
    pub(crate) fn fragments(&self) -> Arc<FragmentedTombstones> {
        let count = self.count.load(Ordering::Acquire);
        let snapshot = self.snapshot.load();
        if snapshot.count >= count {
            return Arc::clone(&snapshot.fragments);
        }
        let _cutting = self.fragmenting.lock().ignore_poison();
        self.fragment(count);
        Arc::clone(&self.snapshot.load().fragments)
    }

    /// Cuts the first `count` tombstones or more. The writer does not wait meanwhile.
    /// REQUIRES: the caller holds `cutting`.
    fn fragment(&self, count: usize) {
        // Another reader may have been faster.
        if self.snapshot.load().count < count {
            let first = (0..count).map(|number| self.at(number));
            let fragments = Arc::new(FragmentedTombstones::new(first));
            self.snapshot.store(Arc::new(FragmentSnapshot { count, fragments }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
