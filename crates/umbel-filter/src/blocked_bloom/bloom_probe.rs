//! Probes of blocked Bloom filters whose lines are in the caller's memory.

use crate::bloom_variants::blocked_512::has;
use crate::probe::cache_line::{MAX_PROBES, line_of};
use crate::simd::Vectors;

/// Probes a blocked Bloom filter for a caller that keeps the filter's lines,
/// [`crate::Bloom::words`], in its own memory.
#[derive(Clone, Copy, Debug)]
pub struct BloomProbe {
    lines: u64,
    probes: u32,
    vectors: Vectors,
}

impl BloomProbe {
    /// Creates the probe of a filter of `lines` lines, in which each key has set `probes` bits,
    /// clamped to 1 to [`crate::MAX_PROBES`].
    pub fn new(lines: u64, probes: u32) -> BloomProbe {
        let probes = probes.clamp(1, MAX_PROBES);
        BloomProbe { lines, probes, vectors: Vectors::of_this_processor() }
    }

    /// The number of the line that has the bits of `hash`; less than the number of lines, unless
    /// that is 0.
    #[inline(always)]
    pub fn line_of(&self, hash: u64) -> u64 {
        line_of(hash, self.lines)
    }

    /// Whether `line`, the line with the number that [`BloomProbe::line_of`] returns, has all bits
    /// of `hash`; never false for an added hash.
    #[inline(always)]
    pub fn has(&self, line: &[u64; 8], hash: u64) -> bool {
        has(self.vectors, line, hash, self.probes)
    }

    /// Number of lines.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Number of bits each key has set.
    pub fn probes(&self) -> u32 {
        self.probes
    }
}
