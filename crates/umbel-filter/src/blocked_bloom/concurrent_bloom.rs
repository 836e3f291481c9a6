//! The memtable's filter, in which threads insert and probe concurrently without a lock.
//!
//! INVARIANT: bits only change from 0 to 1, so every order of relaxed writes gives the same filter.
//! The filter does not order memory itself. A reader sees all bits of a key if it knows of the key
//! by an acquire load of a release store after [`ConcurrentBloom::insert`].

use crate::blocked_bloom::bloom_filter::Bloom;
use crate::format::bloom_header::BloomHeader;
use crate::hash::keyed_hash::KEYED_HASH_KIND;
use crate::probe::cache_line::{LINE_BYTES, Line, Words, all_set, fold_lines, line_of, mask};
use crate::rate::blocked_rate::{designed_rate, line_count, probes};
use crate::simd::prefetch;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Divisors of line counts. A line count is rounded up to a multiple of the largest of these
/// numbers that costs at most a sixteenth more memory. The numbers have many divisors, so that a
/// filter can be folded to nearly every size.
const FOLDABLE: [u64; 6] = [5040, 840, 120, 60, 12, 4];

#[derive(Default)]
#[repr(align(64))]
struct AtomicLine([AtomicU64; 8]);

impl Words for AtomicLine {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }
}

impl AtomicLine {
    fn load(&self) -> Line {
        Line(std::array::from_fn(|word| self.0[word].load(Ordering::Relaxed)))
    }
}

/// A number that the writer changes with each key. The number is alone on two cache lines (the
/// hardware fetches lines in pairs). Otherwise each insert would invalidate adjacent data of
/// readers.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicU64);

/// A blocked Bloom filter of a fixed size that threads add to and probe at the same time.
pub struct ConcurrentBloom {
    probes: u32,
    bits_per_key: i32,
    keys: PaddedCounter,
    lines: Box<[AtomicLine]>,
}

impl ConcurrentBloom {
    /// Allocates a filter for `expected_keys` keys with `bits_per_key` bits, 1 to 1000, for each.
    /// With 0 or less bits per key the filter has no memory and answers "maybe" to every key.
    ///
    /// # Panics
    /// If the size exceeds the address space. If the allocation fails, the process aborts.
    pub fn new(expected_keys: u64, bits_per_key: i32) -> ConcurrentBloom {
        let lines = if bits_per_key <= 0 { 0 } else { line_count(expected_keys, bits_per_key) };
        let lines = FOLDABLE
            .iter()
            .find(|&unit| unit * 16 <= lines)
            .map_or(lines, |unit| lines.next_multiple_of(*unit));
        ConcurrentBloom {
            probes: probes(bits_per_key),
            bits_per_key,
            keys: PaddedCounter::default(),
            lines: (0..lines).map(|_| AtomicLine::default()).collect(),
        }
    }

    /// Adds a key by its hash. The method does not write words whose bits are set already. So
    /// repeated inserts of a key do not invalidate the line for readers.
    #[inline]
    pub fn insert(&self, hash: u64) {
        let index = line_of(hash, self.lines.len() as u64);
        let Some(line) = self.lines.get(index as usize) else {
            return;
        };
        let mut changed = false;
        for (word, more) in line.0.iter().zip(mask(hash, self.probes)) {
            if word.load(Ordering::Relaxed) & more != more {
                changed |= word.fetch_or(more, Ordering::Relaxed) & more != more;
            }
        }
        if changed {
            self.keys.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a key as [`ConcurrentBloom::insert`] does, in half the time, because it uses no locked
    /// instructions.
    ///
    /// REQUIRES: no other thread inserts at the same time, by either method; threads may probe.
    /// Otherwise the bits of a concurrent insert can be lost, and its key would be denied.
    #[inline]
    pub fn insert_unshared(&self, hash: u64) {
        let index = line_of(hash, self.lines.len() as u64);
        let Some(line) = self.lines.get(index as usize) else {
            return;
        };
        let (before, mask) = (line.load().0, mask(hash, self.probes));
        let after = std::array::from_fn(|word| before[word] | mask[word]);
        // One branch, nearly always taken, instead of one for each word that nothing foresees.
        if before != after {
            for (word, value) in line.0.iter().zip(after) {
                word.store(value, Ordering::Relaxed);
            }
            self.keys.0.store(self.keys() + 1, Ordering::Relaxed);
        }
    }

    /// Prefetches the line of `hash` without waiting, so that a later insert or probe need not wait
    /// for memory.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let index = line_of(hash, self.lines.len() as u64);
        if let Some(line) = self.lines.get(index as usize) {
            prefetch(line);
        }
    }

    /// Whether the key of `hash` may have been added; never false for an added key.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let index = line_of(hash, self.lines.len() as u64);
        let Some(line) = self.lines.get(index as usize) else {
            return true;
        };
        all_set(hash, self.probes, line)
    }

    /// Returns the current filter, `factor` times smaller and equal to a filter built at that size.
    /// `None` if `factor` does not divide the number of lines.
    pub fn fold(&self, factor: u64) -> Option<Bloom> {
        if self.lines.is_empty() {
            return None;
        }
        let (keys, hash_kind) = (self.keys(), KEYED_HASH_KIND);
        let header = BloomHeader { probes: self.probes, keys, hash_kind, seed_id: 0 };
        let lines = fold_lines(self.lines.iter().map(AtomicLine::load), factor)?;
        Some(Bloom::from_lines(header, lines))
    }

    /// Returns the current filter, folded to the smallest size that still has the requested bits
    /// for each key. `None` if the filter has no keys or no bits.
    pub fn fold_to_fit(&self) -> Option<Bloom> {
        let lines = self.lines.len() as u64;
        let factor_max = (lines / line_count(self.keys(), self.bits_per_key)).max(1);
        let factor = (1..=factor_max).rev().find(|factor| lines.is_multiple_of(*factor));
        self.fold(factor.unwrap_or(1))
    }

    /// Returns the current filter in encoded form, as [`Bloom::decode`] reads it; no bytes if the
    /// filter has no memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.fold(1).map_or_else(Vec::new, |bloom| bloom.to_bytes())
    }

    /// Number of added keys that changed a bit. The number includes all different keys except the
    /// few whose bits were all set before.
    pub fn keys(&self) -> u64 {
        self.keys.0.load(Ordering::Relaxed)
    }

    /// Number of lines of 512 bits.
    pub fn lines(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Number of bits each key sets.
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// The memory taken by the lines, in bytes.
    pub fn bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    /// Theoretical false-positive rate with the current number of keys, see [`designed_rate`].
    pub fn designed_rate(&self) -> f64 {
        designed_rate(self.keys(), self.lines(), self.probes)
    }
}

impl fmt::Debug for ConcurrentBloom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConcurrentBloom")
            .field("probes", &self.probes)
            .field("keys", &self.keys())
            .field("lines", &self.lines.len())
            .finish_non_exhaustive()
    }
}
