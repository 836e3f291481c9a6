//! Kind 2: a Bloom filter in blocks of 256 bits, eight positions from each remix of the hash.
//!
//! FORMAT: bit `b` of a block is bit `b % 8` of its byte `b / 8`. A hash's block is chosen like a
//! line of kind 1. Each byte of a remix is one position.

use crate::bloom_variants::block_layout::BlockLayout;
use crate::bloom_variants::kind_view_trait::ones;
use crate::hash::keyed_hash::fold;
use crate::probe::cache_line::{MULTIPLIERS, line_of};
use crate::rate::blocked_rate::{best_from, rate_in_cells};
use crate::simd::{ProbeInput, VectorizedFilter, Vectors};

/// Bits in a block.
pub(crate) const BLOCK_BITS: u32 = 256;
/// Bytes in a block.
pub(crate) const BLOCK_BYTES: usize = 32;

/// Number of positions from one remix.
const PROBES_PER_REMIX: u32 = 8;

/// Tenths of bits per key from which 1, 2, 3 ... probes are best; a test computes these numbers
/// again.
const PROBES_BEST_FROM: [u16; 24] = [
    1, 22, 38, 54, 71, 90, 112, 137, 165, 199, 238, 286, 344, 414, 500, 607, 741, 909, 1122, 1393,
    1742, 2193, 2781, 3553,
];

/// Blocks of 256 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked256;

impl BlockLayout for Blocked256 {
    type Block = [u8; BLOCK_BYTES];

    #[inline(always)]
    fn block_of(hash: u64, blocks: u64) -> u64 {
        line_of(hash, blocks)
    }

    #[inline(always)]
    fn add(block: &mut Self::Block, hash: u64, probes: u32) {
        for position in positions(hash, probes) {
            block[usize::from(position / 8)] |= 1 << (position % 8);
        }
    }

    /// Branches after the second probe and then after each remix, as for a line of kind 1.
    fn has(block: &Self::Block, hash: u64, probes: u32) -> bool {
        let probe = |remix: u64| block[(remix % 256 / 8) as usize] >> (remix % 8);
        let first = fold(hash, MULTIPLIERS[0]);
        let second = probe(first >> 8) | u8::from(probes < 2);
        if probe(first) & second & 1 == 0 {
            return false;
        }
        let mut left = probes;
        for by in MULTIPLIERS {
            let mut remix = fold(hash, by);
            let mut all = 1;
            for _ in 0..left.min(PROBES_PER_REMIX) {
                all &= probe(remix);
                remix >>= 8;
            }
            left = left.saturating_sub(PROBES_PER_REMIX);
            if all == 0 || left == 0 {
                return all != 0;
            }
        }
        true
    }

    fn vectorized(vectors: Vectors, input: ProbeInput<'_>) -> Option<VectorizedFilter<'_>> {
        vectors.filter_256(input)
    }

    fn answer(
        vectors: Vectors,
        blocks: &[Self::Block],
        hashes: &[u64],
        probes: u32,
        found: &mut [bool],
    ) -> Option<()> {
        vectors.blocks_256(blocks, hashes, probes, found)
    }

    fn designed_rate(keys: u64, blocks: u64, probes: u32) -> f64 {
        rate_in_cells(BLOCK_BITS, keys, blocks, probes)
    }

    fn bit_missed(probes: u32) -> f64 {
        (1.0 - 1.0 / f64::from(BLOCK_BITS)).powi(probes as i32)
    }

    fn block_rate(block: &Self::Block, probes: u32) -> f64 {
        (ones(block) as f64 / f64::from(BLOCK_BITS)).powi(probes as i32)
    }
}

/// The positions of `hash` in its block, one for each probe.
#[inline(always)]
fn positions(hash: u64, probes: u32) -> impl Iterator<Item = u8> {
    let remixes = MULTIPLIERS.into_iter().flat_map(move |by| fold(hash, by).to_le_bytes());
    remixes.take(probes as usize)
}

/// The best number of probes for a number of bits per key: the smallest whose rate in a large
/// filter is within 1 % of the lowest.
pub(crate) fn best_probes(bits_per_key: f64) -> u32 {
    best_from(&PROBES_BEST_FROM, bits_per_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::blocked_rate::tests::table_of_probes;

    #[test]
    fn probe_table_follows_the_rate() {
        assert_eq!(table_of_probes(BLOCK_BITS, &PROBES_BEST_FROM), PROBES_BEST_FROM);
    }

    /// In a filter of 2^32 blocks 32 bits of the hash have chosen the block; the other 32 must do
    /// for the positions. Single blocks of such a filter are simulated.
    #[test]
    fn blocks_of_huge_filters_are_uniform() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        for (keys, probes) in [(25, 6), (30, 8), (17, 14), (12, 24)] {
            let (mut passed, queries) = (0, 150_000);
            let mut block = [0; BLOCK_BYTES];
            let mut top = 0;
            for query in 0..queries {
                if query % 100 == 0 {
                    block = [0; BLOCK_BYTES];
                    top = random() << 32;
                    for _ in 0..keys {
                        Blocked256::add(&mut block, top | random() >> 32, probes);
                    }
                }
                let hash = top | random() >> 32;
                assert_eq!(Blocked256::block_of(hash, 1 << 32), top >> 32);
                passed += u32::from(Blocked256::has(&block, hash, probes));
            }
            let expected = rate_in_cells(BLOCK_BITS, keys, 1, probes) * f64::from(queries);
            let error = (f64::from(passed) - expected).abs();
            assert!(error < 5.0 * expected.sqrt().max(expected / 50.0), "{passed} for {expected}");
        }
    }
}
