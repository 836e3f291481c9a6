//! Eight lanes of 32 bits with AVX2. AVX2 intrinsics are safe in functions compiled for AVX2.
#![forbid(unsafe_code)]

use crate::hash::keyed_hash::fold;
use crate::probe::cache_line::{MULTIPLIERS, Words, line_of};
use crate::probe::split_block_lanes::{all_set, block_of};
use crate::simd::{MultiversionCode, ProbeInput};
use std::arch::x86_64::{
    __m256i, _mm_cvtsi64_si128, _mm256_and_si256, _mm256_andnot_si256, _mm256_blendv_ps,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cvtepu8_epi32, _mm256_permutevar8x32_epi32,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setr_epi64x,
    _mm256_shuffle_ps, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_srlv_epi32, _mm256_srlv_epi64,
    _mm256_testz_si256,
};

/// Number of probes of one remix in a line of 512 bits, and in a block of 256.
const OF_LINE: usize = 7;
const OF_BLOCK: usize = 8;
/// Order in which the probes of a line come out of two vectors of four 64-bit lanes each.
const ORDER_OF_LINE: [usize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];
const ORDER_OF_BLOCK: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// For every number of probes, 1 in the lanes of the probes below it.
type ProbeMasks = [[i32; 8]; 9];
static LINE_PROBE_MASKS: ProbeMasks = probe_masks(ORDER_OF_LINE);
static BLOCK_PROBE_MASKS: ProbeMasks = probe_masks(ORDER_OF_BLOCK);

const fn probe_masks(order: [usize; 8]) -> ProbeMasks {
    let mut masks = [[0; 8]; 9];
    let mut probes = 0;
    while probes < masks.len() {
        let mut lane = 0;
        while lane < order.len() {
            masks[probes][lane] = (order[lane] < probes) as i32;
            lane += 1;
        }
        probes += 1;
    }
    masks
}

/// A row of such a table.
#[inline]
#[target_feature(enable = "avx2")]
fn row(masks: &ProbeMasks, probes: usize) -> __m256i {
    let [a, b, c, d, e, f, g, h] = masks[probes.min(8)];
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

/// The eight words of 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 32]) -> __m256i {
    let (words, _) = bytes.as_chunks::<8>();
    let [a, b, c, d] = std::array::from_fn(|word| i64::from_le_bytes(words[word]));
    _mm256_setr_epi64x(a, b, c, d)
}

/// Four words of a line, from `first` on.
#[inline]
#[target_feature(enable = "avx2")]
fn half_of(line: &impl Words, first: usize) -> __m256i {
    let [a, b, c, d] = std::array::from_fn(|word| line.word(first + word) as i64);
    _mm256_setr_epi64x(a, b, c, d)
}

/// Requested bits that are not set, of eight probes. A probe's word is in `words`, and its bit is
/// the lower five bits of its position.
#[inline]
#[target_feature(enable = "avx2")]
fn missing(words: __m256i, positions: __m256i, lanes: __m256i) -> __m256i {
    let in_word = _mm256_and_si256(positions, _mm256_set1_epi32(31));
    _mm256_andnot_si256(_mm256_srlv_epi32(words, in_word), lanes)
}

/// Missing bits of the probes of one remix in a block, all eight at once. The bytes of the remix
/// are positions, and the upper three bits of a position choose the word.
#[inline]
#[target_feature(enable = "avx2")]
fn missing_in_block(block: &[u8; 32], hash: u64, by: u64, probes: usize) -> __m256i {
    let remix = fold(hash, by);
    let positions = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(remix as i64));
    let words = _mm256_permutevar8x32_epi32(load(block), _mm256_srli_epi32::<5>(positions));
    missing(words, positions, row(&BLOCK_PROBE_MASKS, probes))
}

#[inline]
#[target_feature(enable = "avx2")]
fn in_block_256(block: &[u8; 32], hash: u64, probes: u32) -> bool {
    let probes = probes as usize;
    let absent = missing_in_block(block, hash, MULTIPLIERS[0], probes);
    let all = _mm256_testz_si256(absent, absent) != 0;
    all && (probes <= OF_BLOCK || rest_in_block(block, hash, probes))
}

/// The probes after those of the first remix. A separate call, so that the code for most filters
/// stays short.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn rest_in_block(block: &[u8; 32], hash: u64, probes: usize) -> bool {
    (1..).zip(&MULTIPLIERS[1..]).all(|(remix, by)| {
        let left = probes.saturating_sub(remix * OF_BLOCK);
        let absent = missing_in_block(block, hash, *by, left);
        _mm256_testz_si256(absent, absent) != 0
    })
}

/// Missing bits of the probes of one remix in a line, seven at once: the highest bit of a position
/// chooses the half of the line, and the next three the word.
#[inline]
#[target_feature(enable = "avx2")]
fn missing_in_line(line: &impl Words, hash: u64, by: u64, probes: usize) -> __m256i {
    let (low, high) = (half_of(line, 0), half_of(line, 4));
    let (first, last) = (_mm256_setr_epi64x(0, 9, 18, 27), _mm256_setr_epi64x(36, 45, 54, 63));
    let remix = _mm256_set1_epi64x(fold(hash, by) as i64);
    let four = _mm256_castsi256_ps(_mm256_srlv_epi64(remix, first));
    let three = _mm256_castsi256_ps(_mm256_srlv_epi64(remix, last));
    let positions = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(four, three));
    let word = _mm256_srli_epi32::<5>(positions);
    let low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word));
    let high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word));
    let half = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(positions));
    let words = _mm256_castps_si256(_mm256_blendv_ps(low, high, half));
    missing(words, positions, row(&LINE_PROBE_MASKS, probes.min(OF_LINE)))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn in_line_512(line: &impl Words, hash: u64, probes: u32) -> bool {
    let probes = probes as usize;
    let absent = missing_in_line(line, hash, MULTIPLIERS[0], probes);
    let all = _mm256_testz_si256(absent, absent) != 0;
    all && (probes <= OF_LINE || rest_in_line(line, hash, probes))
}

/// The probes after those of the first remix.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn rest_in_line(line: &impl Words, hash: u64, probes: usize) -> bool {
    (1..).zip(&MULTIPLIERS[1..]).all(|(remix, by)| {
        let left = probes.saturating_sub(remix * OF_LINE);
        let absent = missing_in_line(line, hash, *by, left);
        _mm256_testz_si256(absent, absent) != 0
    })
}

/// The portable code, compiled for AVX2: one vector of eight lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn in_split_block(block: &[u8; 32], hash: u64) -> bool {
    all_set(block, hash)
}

#[target_feature(enable = "avx2")]
pub(super) fn lines_512(lines: &[impl Words], hashes: &[u64], probes: u32, found: &mut [bool]) {
    for (hash, found) in hashes.iter().zip(found) {
        let line = lines.get(line_of(*hash, lines.len() as u64) as usize);
        *found = line.is_none_or(|line| in_line_512(line, *hash, probes));
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn blocks_256(blocks: &[[u8; 32]], hashes: &[u64], probes: u32, found: &mut [bool]) {
    for (hash, found) in hashes.iter().zip(found) {
        let block = blocks.get(line_of(*hash, blocks.len() as u64) as usize);
        *found = block.is_none_or(|block| in_block_256(block, *hash, probes));
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn split_blocks(blocks: &[[u8; 32]], hashes: &[u64], found: &mut [bool]) {
    for (hash, found) in hashes.iter().zip(found) {
        let block = blocks.get(block_of(*hash, blocks.len() as u64) as usize);
        *found = block.is_none_or(|block| all_set(block, *hash));
    }
}

/// Whether the line of `hash` has its bits.
#[target_feature(enable = "avx2")]
pub(super) fn whole_512(input: &ProbeInput<'_>, hash: u64) -> bool {
    let (lines, _) = input.payload.as_chunks::<64>();
    let line = lines.get(line_of(hash, lines.len() as u64) as usize);
    line.is_none_or(|line| in_line_512(line, hash, input.probes.into()))
}

/// Whether the block of `hash` has its bits.
#[target_feature(enable = "avx2")]
pub(super) fn whole_256(input: &ProbeInput<'_>, hash: u64) -> bool {
    let (blocks, _) = input.payload.as_chunks::<32>();
    let block = blocks.get(line_of(hash, blocks.len() as u64) as usize);
    block.is_none_or(|block| in_block_256(block, hash, input.probes.into()))
}

/// Whether the split block of `hash` has its bits.
#[target_feature(enable = "avx2")]
pub(super) fn whole_split(input: &ProbeInput<'_>, hash: u64) -> bool {
    let blocks = input.blocks;
    let block = blocks.get(block_of(hash, blocks.len() as u64) as usize);
    block.is_none_or(|block| in_split_block(block, hash))
}

/// The code compiled for such processors.
#[target_feature(enable = "avx2,bmi2,popcnt")]
pub(super) fn run<W: MultiversionCode>(work: W) -> W::Answer {
    work.run::<true>()
}
