//! Blocked Bloom filters whose lines lie in memory of the asker's own.

use crate::blocked_512::has;
use crate::line::{MAX_PROBES, line_of};
use crate::simd::Vectors;

/// How the lines of a blocked Bloom filter are asked by those who keep them,
/// [`crate::Bloom::words`], in memory of their own.
#[derive(Clone, Copy, Debug)]
pub struct BloomProbe {
    lines: u64,
    probes: u32,
    vectors: Vectors,
}

impl BloomProbe {
    /// What asks a filter of `lines` lines, of whose bits each key has set `probes`: 1 to
    /// [`crate::MAX_PROBES`], and fewer and more are taken as these.
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

    /// How many lines there are.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// How many bits each key has set.
    pub fn probes(&self) -> u32 {
        self.probes
    }
}
