//! Kind 1: the lines of 512 bits that tables and memtables also use, with the interface of all
//! kinds.

use crate::bloom_variants::block_layout::BlockLayout;
use crate::bloom_variants::kind_view_trait::ones;
use crate::probe::cache_line::{self, LINE_BITS, LINE_BYTES, Words, all_set, line_of};
use crate::rate::blocked_rate::{best_from, designed_rate};
use crate::simd::{ProbeInput, VectorizedFilter, Vectors};

/// Tenths of bits per key from which 1, 2, 3 ... probes are best; a test computes these numbers
/// again. For whole bits per key they agree with [`crate::probes`].
const PROBES_BEST_FROM: [u16; 24] = [
    1, 22, 37, 53, 69, 86, 104, 123, 144, 166, 191, 219, 250, 285, 324, 368, 418, 476, 542, 618,
    707, 809, 928, 1068,
];

/// Lines of 512 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked512;

impl BlockLayout for Blocked512 {
    type Block = [u8; LINE_BYTES];

    #[inline(always)]
    fn block_of(hash: u64, blocks: u64) -> u64 {
        line_of(hash, blocks)
    }

    #[inline(always)]
    fn add(block: &mut Self::Block, hash: u64, probes: u32) {
        cache_line::add(block, hash, probes);
    }

    fn has(block: &Self::Block, hash: u64, probes: u32) -> bool {
        all_set(hash, probes, block)
    }

    fn vectorized(vectors: Vectors, input: ProbeInput<'_>) -> Option<VectorizedFilter<'_>> {
        vectors.filter_512(input)
    }

    fn answer(
        vectors: Vectors,
        blocks: &[Self::Block],
        hashes: &[u64],
        probes: u32,
        found: &mut [bool],
    ) -> Option<()> {
        vectors.lines_512(blocks, hashes, probes, found)
    }

    fn designed_rate(keys: u64, blocks: u64, probes: u32) -> f64 {
        designed_rate(keys, blocks, probes)
    }

    fn bit_missed(probes: u32) -> f64 {
        (1.0 - 1.0 / LINE_BITS as f64).powi(probes as i32)
    }

    fn block_rate(block: &Self::Block, probes: u32) -> f64 {
        (ones(block) as f64 / LINE_BITS as f64).powi(probes as i32)
    }
}

/// Whether a line has all bits of `hash`.
#[inline(always)]
pub(crate) fn has(vectors: Vectors, line: &impl Words, hash: u64, probes: u32) -> bool {
    vectors.in_line_512(line, hash, probes).unwrap_or_else(|| has_portably(line, hash, probes))
}

// A call, so that the code that most processors use stays short enough to become part of callers.
#[inline(never)]
fn has_portably(line: &impl Words, hash: u64, probes: u32) -> bool {
    all_set(hash, probes, line)
}

/// The best number of probes for a number of bits per key: the smallest whose rate in a large
/// filter is within 1 % of the lowest.
pub(crate) fn best_probes(bits_per_key: f64) -> u32 {
    best_from(&PROBES_BEST_FROM, bits_per_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::blocked_rate::probes;
    use crate::rate::blocked_rate::tests::table_of_probes;

    #[test]
    fn probe_table_follows_the_rate() {
        assert_eq!(table_of_probes(LINE_BITS as u32, &PROBES_BEST_FROM), PROBES_BEST_FROM);
        for bits_per_key in 1..=1000 {
            assert_eq!(best_probes(f64::from(bits_per_key)), probes(bits_per_key));
        }
    }
}
