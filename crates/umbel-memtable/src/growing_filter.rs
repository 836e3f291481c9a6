//! The memtable's filter, which grows with the keys. The filter starts with a few cache lines. A
//! full filter is rebuilt from its hashes at a multiple of its size, and so soon reaches the size
//! planned for the memtable.
//!
//! INVARIANT: a filter that readers could ever see stays until the memtable is dropped. Each filter
//! has the hashes of all filters before it.

use crate::loom_atomics::{AtomicPtr, Ordering};
use std::array;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr as OwnedPtr, AtomicUsize};
use umbel_filter::ConcurrentBloom;

/// Number of keys for which the first filter has space.
const KEYS_FIRST: u64 = 64;
/// Factor by which the next filter has space for more keys.
const GROWTH: u64 = 4;
/// A full filter grows to the planned size in one step if that is at most this factor larger. The
/// hashes for another step would take as much memory as the step would save.
const LAST_STEP: u64 = 32;

/// Maximum number of filters, one after the other. Nine suffice for sixteen million keys.
const FILTERS_MAX: usize = 16;

/// A filter that grows. Readers probe the filter concurrently with inserts of the only writer.
pub(crate) struct GrowingFilter {
    /// Newest filter; null before the first filter.
    current: AtomicPtr<ConcurrentBloom>,
    /// Bits per key; zero or less in a memtable without a filter.
    bits_per_key: i32,
    /// Number of keys for which the last filter has space.
    keys_planned: u64,
    /// All filters, since readers possibly still probe old ones. INVARIANT: each pointer came from
    /// `Box::into_raw`, is written once and freed only in `drop`.
    all: [OwnedPtr<ConcurrentBloom>; FILTERS_MAX],
    /// Bytes of the filters and of the list of hashes.
    memory_bytes: AtomicUsize,
}

/// State of the only writer of a filter.
#[derive(Default)]
pub(crate) struct FilterGrowth {
    /// Hashes of the current filter, unless it is the last filter.
    hashes: Vec<u64>,
    /// Number of hashes for which the current filter has space; `u64::MAX` for the last filter.
    capacity: u64,
    /// Number of filters.
    filters: usize,
    /// Bytes of all filters.
    filter_bytes: usize,
}

impl GrowingFilter {
    /// Creates a filter without keys. With zero bits per key or less it stores no hashes.
    pub(crate) fn new(keys_planned: u64, bits_per_key: i32) -> GrowingFilter {
        GrowingFilter {
            current: AtomicPtr::new(null_mut()),
            bits_per_key,
            keys_planned,
            all: array::from_fn(|_| Default::default()),
            memory_bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes of memory that the filters and the list of hashes take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Returns the newest filter.
    #[inline]
    pub(crate) fn current(&self) -> Option<&ConcurrentBloom> {
        // SAFETY: null, or a filter that was stored with release after it was written and is freed
        // only when `self` is dropped.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Whether a key with this hash was possibly inserted. The function is not inlined: callers
    /// probe several filters in a loop, and the compiler would compute all positions before the
    /// first probe.
    #[inline(never)]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        match self.current() {
            Some(filter) => filter.may_contain(hash),
            None => self.bits_per_key <= 0,
        }
    }

    /// Prefetches the cache line that an insert of `hash` will change.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(filter) = self.current() {
            filter.prefetch(hash);
        }
    }

    /// Adds a hash. REQUIRES: `growth` is always that of this filter, and its lock makes the caller
    /// the only writer.
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

    /// Adds a hash to a filter that is not the last one.
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

    /// Replaces the current filter by a larger one with the same hashes.
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
