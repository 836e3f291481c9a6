//! Kind 4: the split block Bloom filter of Apache Parquet.
//!
//! FORMAT: a block is eight words of 32 bits, little-endian. The upper half of the hash chooses the
//! block; the lower half, multiplied by a salt of its own, chooses one bit in each word.

use crate::double::Double;
use crate::kind::FilterKind;
use crate::layout::Layout;
use crate::rate::{chance_all_set, untouched, with_same_hash};

/// How many words a block has, and how many bits each key sets.
pub(crate) const LANES: usize = 8;
/// Bytes in a block.
pub(crate) const BLOCK_BYTES: usize = 32;
/// Bits in a word.
const LANE_BITS: f64 = 32.0;
/// FORMAT: what the lower half of the hash is multiplied by, from the specification of Parquet.
const SALTS: [u32; LANES] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// Blocks of eight words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitBlock;

impl Layout for SplitBlock {
    type Block = [u8; BLOCK_BYTES];

    const KIND: FilterKind = FilterKind::SplitBlock;

    fn blocks(payload: &[u8]) -> &[Self::Block] {
        payload.as_chunks().0
    }

    fn blocks_mut(payload: &mut [u8]) -> &mut [Self::Block] {
        payload.as_chunks_mut().0
    }

    fn payload(blocks: &[Self::Block]) -> &[u8] {
        blocks.as_flattened()
    }

    /// FORMAT: any number of blocks up to 2^32; a product of numbers below and up to 2^32.
    #[inline(always)]
    fn block_of(hash: u64, blocks: u64) -> u64 {
        (hash >> 32).wrapping_mul(blocks) >> 32
    }

    #[inline(always)]
    fn add(block: &mut Self::Block, hash: u64, _probes: u32) {
        let (words, _) = block.as_chunks_mut::<4>();
        for (word, more) in words.iter_mut().zip(mask(hash)) {
            *word = (u32::from_le_bytes(*word) | more).to_le_bytes();
        }
    }

    #[inline(always)]
    fn has(block: &Self::Block, hash: u64, _probes: u32) -> bool {
        let words = words(block);
        let mask = mask(hash);
        let mut missing = [0; LANES];
        for lane in 0..LANES {
            missing[lane] = !words[lane] & mask[lane];
        }
        missing.into_iter().fold(0, |all, lane| all | lane) == 0
    }

    /// Of the eight bits of a query none is left untouched: inclusion and exclusion over them, as
    /// in
    /// [`crate::designed_rate`]. On top come keys with the same lower half in the same block.
    fn designed_rate(keys: u64, blocks: u64, _probes: u32) -> f64 {
        let untouched: Vec<Double> = (0..=LANES as i32)
            .map(|lanes| untouched(Double::from((1.0 - 1.0 / LANE_BITS).powi(lanes)), keys, blocks))
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

/// The words of a block.
#[inline(always)]
fn words(block: &[u8; BLOCK_BYTES]) -> [u32; LANES] {
    let (words, _) = block.as_chunks::<4>();
    std::array::from_fn(|lane| u32::from_le_bytes(words[lane]))
}

/// The bit of `hash` in every word of its block.
#[inline(always)]
fn mask(hash: u64) -> [u32; LANES] {
    std::array::from_fn(|lane| 1 << ((hash as u32).wrapping_mul(SALTS[lane]) >> 27))
}
