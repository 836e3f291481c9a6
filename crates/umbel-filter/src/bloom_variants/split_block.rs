//! Kind 4: the split block Bloom filter of Apache Parquet.
//!
//! FORMAT: a block is eight words of 32 bits, little-endian. The upper half of the hash chooses the
//! block; the lower half, multiplied by a salt of its own, chooses one bit in each word.

use crate::bloom_variants::block_layout::BlockLayout;
use crate::probe::split_block_lanes::{BLOCK_BYTES, LANES, all_set, block_of, mask, words};
use crate::rate::blocked_rate::{chance_all_set, untouched, with_same_hash};
use crate::rate::double_double::DoubleDouble;
use crate::simd::{ProbeInput, VectorizedFilter, Vectors};

/// Bits in a word.
const LANE_BITS: f64 = 32.0;

/// Blocks of eight words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitBlock;

impl BlockLayout for SplitBlock {
    type Block = [u8; BLOCK_BYTES];

    #[inline(always)]
    fn block_of(hash: u64, blocks: u64) -> u64 {
        block_of(hash, blocks)
    }

    #[inline(always)]
    fn add(block: &mut Self::Block, hash: u64, _probes: u32) {
        let (words, _) = block.as_chunks_mut::<4>();
        for (word, more) in words.iter_mut().zip(mask(hash)) {
            *word = (u32::from_le_bytes(*word) | more).to_le_bytes();
        }
    }

    fn has(block: &Self::Block, hash: u64, _probes: u32) -> bool {
        all_set(block, hash)
    }

    fn vectorized(vectors: Vectors, input: ProbeInput<'_>) -> Option<VectorizedFilter<'_>> {
        vectors.filter_split(input)
    }

    fn answer(
        vectors: Vectors,
        blocks: &[Self::Block],
        hashes: &[u64],
        _probes: u32,
        found: &mut [bool],
    ) -> Option<()> {
        vectors.split_blocks(blocks, hashes, found)
    }

    /// Computes the rate by inclusion and exclusion over the eight bits of a key, as
    /// [`crate::designed_rate`] does. Added to that are keys with the same lower half of the hash
    /// in the same block.
    fn designed_rate(keys: u64, blocks: u64, _probes: u32) -> f64 {
        let untouched: Vec<DoubleDouble> = (0..=LANES as i32)
            .map(|lanes| {
                untouched(DoubleDouble::from((1.0 - 1.0 / LANE_BITS).powi(lanes)), keys, blocks)
            })
            .collect();
        let same_half = keys as f64 / blocks as f64;
        let passed = chance_all_set(LANES, &untouched).clamp(0.0, 1.0);
        let same = -(-same_half / 2f64.powi(32)).exp_m1();
        with_same_hash(passed + (1.0 - passed) * same, 0, 64)
    }

    fn bit_missed(_probes: u32) -> f64 {
        1.0 - 1.0 / LANE_BITS
    }

    fn block_rate(block: &Self::Block, _probes: u32) -> f64 {
        words(block).into_iter().map(|word| f64::from(word.count_ones()) / LANE_BITS).product()
    }
}
