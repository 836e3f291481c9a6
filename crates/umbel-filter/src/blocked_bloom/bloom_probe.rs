//! Blocked Bloom filters whose lines lie in memory of the asker's own.

use crate::bloom_variants::blocked_512::has;
use crate::probe::cache_line::{MAX_PROBES, line_of};
use crate::simd::Vectors;

/// Probes of a blocked Bloom filter for callers that keep its lines,
/// [`crate::Bloom::words`], in memory of their own.
#[derive(Clone, Copy, Debug)]
pub struct BloomProbe {
    lines: u64,
    probes: u32,
    vectors: Vectors,
}

impl BloomProbe {
    /// Prober of a filter of `lines` lines, in which each key has set `probes` bits: 1 to
    /// [`crate::MAX_PROBES`], to which other values are clamped.
    pub fn new(lines: u64, probes: u32) -> BloomProbe {
        let probes = probes.clamp(1, MAX_PROBES);
        BloomProbe { lines, probes, vectors: Vectors::of_this_processor() }
    }

    /// The number of the line that has the bits of `hash`: less than the number of lines, where
    /// there are any.
    #[inline(always)]
    pub fn line_of(&self, hash: u64) -> u64 {
        line_of(hash, self.lines)
    }

    /// Whether this line, the one that [`BloomProbe::line_of`] names, has all bits of `hash` set:
    /// never false where the hash was added. As [`crate::Bloom::may_contain`].
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
