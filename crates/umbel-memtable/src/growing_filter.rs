//! The filter in front of the tree. It grows with the keys: it starts with a line or two. Whenever
//! it is full, it is rebuilt at a multiple of its size from its hashes. It soon
//! reaches the size that was planned for the memtable.
//!
//! INVARIANT: a filter that readers were once given stays until the memtable is dropped; each one
//! has the hashes of all before it.

use crate::loom_atomics::{AtomicPtr, Ordering};
use std::array;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr as OwnedPtr, AtomicUsize};
use umbel_filter::ConcurrentBloom;

/// Space for this many keys is taken with the first.
const KEYS_FIRST: u64 = 64;
/// Number of times as many the next filter has space for.
const GROWTH: u64 = 4;
/// A full filter may skip steps to the planned size over this factor: the hashes
/// for another step would take as much memory as it would save.
const LAST_STEP: u64 = 32;

/// Most filters one after the other: sixteen million keys are planned for with nine.
const FILTERS_MAX: usize = 16;

/// A filter that grows. Readers probe it during inserts of the only writer.
pub(crate) struct GrowingFilter {
    /// Newest filter; null before the first.
    current: AtomicPtr<ConcurrentBloom>,
    /// None of a memtable without a filter.
    bits_per_key: i32,
    /// Number of keys the last filter has space for.
    keys_planned: u64,
    /// Every filter, which readers may still be probing. INVARIANT: each pointer came from
    /// `Box::into_raw`, is written once and freed only in `drop`.
    all: [OwnedPtr<ConcurrentBloom>; FILTERS_MAX],
    /// Bytes of the filters and of the list of hashes.
    memory_bytes: AtomicUsize,
}

/// State of the only writer of a filter.
#[derive(Default)]
pub(crate) struct FilterGrowth {
    /// Hashes of the current filter, until it is the last.
    hashes: Vec<u64>,
    /// Number of hashes the current filter has space for; `u64::MAX` once it is the last.
    capacity: u64,
    /// Number of filters.
    filters: usize,
    /// The bytes of all of them.
    filter_bytes: usize,
}

impl GrowingFilter {
    /// A filter without keys. With no bits it keeps nothing.
    pub(crate) fn new(keys_planned: u64, bits_per_key: i32) -> GrowingFilter {
        GrowingFilter {
            current: AtomicPtr::new(null_mut()),
            bits_per_key,
            keys_planned,
            all: array::from_fn(|_| Default::default()),
            memory_bytes: AtomicUsize::new(0),
        }
    }

    /// Memory taken for keys, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// The newest filter.
    #[inline]
    pub(crate) fn current(&self) -> Option<&ConcurrentBloom> {
        // SAFETY: null, or a filter that was stored with release after it was written and is freed
        // only when `self` is dropped.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Whether a key with this hash may have been inserted. Not inlined: callers probe several
    /// filters in a loop, and the compiler would compute every position before the first probe.
    #[inline(never)]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        match self.current() {
            Some(filter) => filter.may_contain(hash),
            None => self.bits_per_key <= 0,
        }
    }

    /// Prefetches the line that an insert of `hash` will change.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(filter) = self.current() {
            filter.prefetch(hash);
        }
    }

    /// Adds a hash. REQUIRES: `growth` is always the same; its lock makes this the one writer.
    #[inline]
    pub(crate) fn insert(&self, hash: u64, growth: &mut FilterGrowth) {
        if self.bits_per_key <= 0 {
            return;
        }
        if growth.capacity != u64::MAX {
            self.insert_growing(hash, growth);
        } else if let Some(filter) = self.current() {
            filter.insert_unshared(hash);
        }
    }

    /// As `insert`, while the filter is not the last yet.
    fn insert_growing(&self, hash: u64, growth: &mut FilterGrowth) {
        if growth.hashes.len() as u64 == growth.capacity {
            self.grow(growth);
        }
        if growth.capacity != u64::MAX {
            growth.hashes.push(hash);
        }
        let memory_bytes = growth.filter_bytes + growth.hashes.capacity() * size_of::<u64>();
        self.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        if let Some(filter) = self.current() {
            filter.insert_unshared(hash);
        }
    }

    /// Puts a larger filter with the same hashes in place of the current one.
    #[cold]
    fn grow(&self, growth: &mut FilterGrowth) {
        let wanted = (growth.capacity * GROWTH).max(KEYS_FIRST);
        let last = wanted >= self.keys_planned || growth.capacity * LAST_STEP >= self.keys_planned;
        let expected_keys = if last { self.keys_planned } else { wanted };
        let filter = Box::new(ConcurrentBloom::new(expected_keys, self.bits_per_key));
        growth.hashes.iter().for_each(|&hash| filter.insert_unshared(hash));
        growth.filter_bytes += filter.bytes() + size_of::<ConcurrentBloom>();
        if last {
            growth.capacity = u64::MAX;
            growth.hashes = Vec::new();
        } else {
            growth.capacity = expected_keys;
        }
        let filter = Box::into_raw(filter);
        self.all[growth.filters].store(filter, Ordering::Relaxed);
        growth.filters += 1;
        self.current.store(filter, Ordering::Release);
    }
}

impl Drop for GrowingFilter {
    fn drop(&mut self) {
        let all = self.all.iter_mut().map(|filter| filter.get_mut());
        for filter in all.filter(|filter| !filter.is_null()) {
            // SAFETY: from `Box::into_raw` by the invariant, freed once, here; no thread has a
            // reference to it any more, since all borrow `self`.
            drop(unsafe { Box::from_raw(*filter) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn no_hash_is_lost_while_it_grows() {
        for planned in [1, 64, 65, 3_000, 100_000] {
            let (filter, mut growth) = (GrowingFilter::new(planned, 10), FilterGrowth::default());
            assert!(!filter.may_contain(hash(0)) && filter.memory_bytes() == 0);
            for n in 0..30_000u64 {
                filter.insert(hash(n), &mut growth);
                if n.is_power_of_two() {
                    assert!((0..=n).all(|n| filter.may_contain(hash(n))));
                }
            }
            assert!((0..30_000).all(|n| filter.may_contain(hash(n))));
        }
    }

    #[test]
    fn memory_follows_the_keys_and_absent_ones_are_refused() {
        let (filter, mut growth) = (GrowingFilter::new(524_288, 10), FilterGrowth::default());
        for n in 0..60_000u64 {
            filter.insert(hash(n), &mut growth);
            let keys = n + 1;
            let taken_max = if keys <= 16_384 { keys as usize * 24 + 2_000 } else { 720_000 };
            let taken = filter.memory_bytes();
            assert!(taken <= taken_max, "{taken} bytes for {keys} keys");
            if matches!(keys, 60 | 250 | 1_000 | 16_000 | 60_000) {
                let passed = (0..20_000).filter(|&n| filter.may_contain(hash(n << 32))).count();
                assert!(passed < 400, "{passed} of 20,000 passed at {keys} keys");
            }
        }
    }

    #[test]
    fn filter_without_bits_is_empty_and_answers_maybe() {
        let (filter, mut growth) = (GrowingFilter::new(1_000, 0), FilterGrowth::default());
        filter.insert(7, &mut growth);
        assert!(filter.may_contain(8) && filter.current().is_none());
        assert_eq!(filter.memory_bytes(), 0);
    }
}
