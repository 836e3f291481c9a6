//! Probes of the blocked kinds with the vector instructions that the processor turns out to have.
//!
//! The one module of this crate with unsafe code, of two sorts: functions that are compiled for
//! AVX2 are called after asking the processor whether it has AVX2; and 16 bytes of an array are
//! loaded into a register of NEON, which every aarch64 processor has. All other memory is read
//! through slices, and the other intrinsics are safe ones. Each function answers `None`, and has
//! done nothing, where the processor has neither: then the portable code must answer.
#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(unsafe_code, reason = "vectors are used once they are known to be there")
)]

/// Which vector instructions batches of probes are answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstructionSet {
    /// What every processor of the target has.
    Portable,
    /// AVX2, found on an x86 processor at run time.
    Avx2,
    /// NEON, which every aarch64 processor has.
    Neon,
}

impl InstructionSet {
    /// The instructions that are used on this processor.
    pub fn of_this_processor() -> InstructionSet {
        if has_avx2() {
            InstructionSet::Avx2
        } else if has_neon() {
            InstructionSet::Neon
        } else {
            InstructionSet::Portable
        }
    }
}

/// Whether the functions for AVX2 may be called; a load and a branch after the first time.
#[inline(always)]
fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !without_vectors() && is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether the functions for NEON are used: known when this is compiled.
#[inline(always)]
fn has_neon() -> bool {
    cfg!(all(target_arch = "aarch64", target_feature = "neon")) && !without_vectors()
}

/// Whether a test wants the portable code.
#[inline(always)]
fn without_vectors() -> bool {
    #[cfg(test)]
    return tests::PORTABLE.get();
    #[cfg(not(test))]
    false
}

/// Calls a function of [`avx2`] or [`neon`] and answers with what it says, or with `None`.
macro_rules! with_vectors {
    ($function:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            // SAFETY: the function wants a processor with AVX2, and this one has it.
            return Some(unsafe { avx2::$function($($argument),*) });
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        if has_neon() {
            // SAFETY: the function wants a processor with NEON, which the target says it has.
            return Some(unsafe { neon::$function($($argument),*) });
        }
        let _ = ($($argument),*);
        None
    }};
}

/// Whether a line of 512 bits has the bits of `hash`.
#[inline(always)]
pub(crate) fn in_line_512(line: &[u8; 64], hash: u64, probes: u32) -> Option<bool> {
    with_vectors!(in_line_512(line, hash, probes))
}

/// Whether a block of 256 bits has the bits of `hash`.
#[inline(always)]
pub(crate) fn in_block_256(block: &[u8; 32], hash: u64, probes: u32) -> Option<bool> {
    with_vectors!(in_block_256(block, hash, probes))
}

/// Whether a split block has the bits of `hash`.
#[inline(always)]
pub(crate) fn in_split_block(block: &[u8; 32], hash: u64) -> Option<bool> {
    with_vectors!(in_split_block(block, hash))
}

/// Answers for every hash whether its line of 512 bits has its bits.
pub(crate) fn lines_512(
    lines: &[[u8; 64]],
    hashes: &[u64],
    probes: u32,
    found: &mut [bool],
) -> Option<()> {
    with_vectors!(lines_512(lines, hashes, probes, found))
}

/// Answers for every hash whether its block of 256 bits has its bits.
pub(crate) fn blocks_256(
    blocks: &[[u8; 32]],
    hashes: &[u64],
    probes: u32,
    found: &mut [bool],
) -> Option<()> {
    with_vectors!(blocks_256(blocks, hashes, probes, found))
}

/// Answers for every hash whether its split block has its bits.
pub(crate) fn split_blocks(blocks: &[[u8; 32]], hashes: &[u64], found: &mut [bool]) -> Option<()> {
    with_vectors!(split_blocks(blocks, hashes, found))
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use crate::hash::fold;
    use crate::line::{MULTIPLIERS, line_of};
    use crate::split_lanes::{all_set, all_set_each};
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi64_si128, _mm256_and_si256, _mm256_andnot_si256, _mm256_blendv_ps,
        _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cvtepu8_epi32, _mm256_or_si256,
        _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi32,
        _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_shuffle_ps, _mm256_slli_epi32,
        _mm256_srli_epi32, _mm256_srlv_epi32, _mm256_srlv_epi64, _mm256_testz_si256,
    };

    /// How many probes one remix has in a line of 512 bits, and in a block of 256.
    const OF_LINE: usize = 7;
    const OF_BLOCK: usize = 8;
    /// In which order the probes of a line come out of two vectors of four 64-bit lanes each.
    const ORDER_OF_LINE: [usize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];
    const ORDER_OF_BLOCK: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    /// For every number of probes, 1 in the lanes of the probes below it.
    type Asked = [[i32; 8]; 9];
    static ASKED_OF_LINE: Asked = asked(ORDER_OF_LINE);
    static ASKED_OF_BLOCK: Asked = asked(ORDER_OF_BLOCK);

    const fn asked(order: [usize; 8]) -> Asked {
        let mut asked = [[0; 8]; 9];
        let mut probes = 0;
        while probes < asked.len() {
            let mut lane = 0;
            while lane < order.len() {
                asked[probes][lane] = (order[lane] < probes) as i32;
                lane += 1;
            }
            probes += 1;
        }
        asked
    }

    /// A row of such a table.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn row(asked: &Asked, probes: usize) -> __m256i {
        let [a, b, c, d, e, f, g, h] = asked[probes.min(8)];
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

    /// The bits that are asked for and are not set, of eight probes of which each has its word in
    /// `words` and its bit in the lower five bits of its position.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn missing(words: __m256i, positions: __m256i, asked: __m256i) -> __m256i {
        let in_word = _mm256_and_si256(positions, _mm256_set1_epi32(31));
        _mm256_andnot_si256(_mm256_srlv_epi32(words, in_word), asked)
    }

    /// All eight probes of a remix at once: its bytes are positions, and the upper three bits of a
    /// position choose the word.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn in_block_256(block: &[u8; 32], hash: u64, probes: u32) -> bool {
        let block = load(block);
        let mut absent = _mm256_setzero_si256();
        let mut left = probes as usize;
        for by in MULTIPLIERS {
            let remix = fold(hash, by);
            let positions = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(remix as i64));
            let words = _mm256_permutevar8x32_epi32(block, _mm256_srli_epi32::<5>(positions));
            let more = missing(words, positions, row(&ASKED_OF_BLOCK, left));
            absent = _mm256_or_si256(absent, more);
            if left <= OF_BLOCK {
                break;
            }
            left -= OF_BLOCK;
        }
        _mm256_testz_si256(absent, absent) != 0
    }

    /// All seven probes of a remix at once: of a position the highest bit chooses the half of the
    /// line, and the next three the word.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn in_line_512(line: &[u8; 64], hash: u64, probes: u32) -> bool {
        let (halves, _) = line.as_chunks::<32>();
        let (low, high) = (load(&halves[0]), load(&halves[1]));
        let (first, last) = (_mm256_setr_epi64x(0, 9, 18, 27), _mm256_setr_epi64x(36, 45, 54, 63));
        let mut absent = _mm256_setzero_si256();
        let mut left = probes as usize;
        for by in MULTIPLIERS {
            let remix = _mm256_set1_epi64x(fold(hash, by) as i64);
            let four = _mm256_castsi256_ps(_mm256_srlv_epi64(remix, first));
            let three = _mm256_castsi256_ps(_mm256_srlv_epi64(remix, last));
            let positions = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(four, three));
            let word = _mm256_srli_epi32::<5>(positions);
            let low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word));
            let high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word));
            let half = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(positions));
            let words = _mm256_castps_si256(_mm256_blendv_ps(low, high, half));
            let more = missing(words, positions, row(&ASKED_OF_LINE, left.min(OF_LINE)));
            absent = _mm256_or_si256(absent, more);
            if left <= OF_LINE {
                break;
            }
            left -= OF_LINE;
        }
        _mm256_testz_si256(absent, absent) != 0
    }

    /// The portable code, compiled for AVX2: one vector of eight lanes.
    #[target_feature(enable = "avx2")]
    pub(super) fn in_split_block(block: &[u8; 32], hash: u64) -> bool {
        all_set(block, hash)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn lines_512(lines: &[[u8; 64]], hashes: &[u64], probes: u32, found: &mut [bool]) {
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
        all_set_each(blocks, hashes, found);
    }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon {
    use crate::hash::fold;
    use crate::line::{MULTIPLIERS, line_of};
    use crate::split_lanes::{SALTS, block_of};
    use std::arch::aarch64::{
        uint8x8_t, uint8x16_t, uint8x16x2_t, uint8x16x4_t, vand_u8, vbic_u8, vbicq_u32,
        vcombine_u64, vcreate_u8, vcreate_u64, vdup_n_u8, vdupq_n_u32, vdupq_n_u64, vget_lane_u64,
        vld1q_u8, vmaxvq_u32, vmovn_u16, vmulq_u32, vneg_s8, vorrq_u32, vqtbl2_u8, vqtbl4_u8,
        vreinterpret_s8_u8, vreinterpret_u64_u8, vreinterpretq_s32_u32, vreinterpretq_s64_u64,
        vreinterpretq_u16_u32, vreinterpretq_u32_u8, vreinterpretq_u32_u64, vshl_u8, vshlq_u32,
        vshlq_u64, vshr_n_u8, vshrn_n_u16, vshrq_n_u32, vuzp1q_u16, vuzp1q_u32,
    };

    /// How many probes one remix has in a line of 512 bits, and in a block of 256.
    const OF_LINE: u32 = 7;
    const OF_BLOCK: u32 = 8;

    #[inline]
    #[target_feature(enable = "neon")]
    fn load(bytes: &[u8; 16]) -> uint8x16_t {
        // SAFETY: the pointer is that of 16 bytes that may be read; none need be aligned.
        unsafe { vld1q_u8(bytes.as_ptr()) }
    }

    /// Whether the first `asked` of eight probes, each with its byte and its bit in that byte, find
    /// their bit set.
    #[inline]
    #[target_feature(enable = "neon")]
    fn all_set(bytes: uint8x8_t, bits: uint8x8_t, asked: u32) -> bool {
        let ones = 0x0101_0101_0101_0101u64 >> (64 - 8 * asked.clamp(1, 8));
        let shifted = vshl_u8(bytes, vneg_s8(vreinterpret_s8_u8(bits)));
        let missing = vbic_u8(vcreate_u8(ones), shifted);
        vget_lane_u64::<0>(vreinterpret_u64_u8(missing)) == 0
    }

    /// All eight probes of a remix at once: its bytes are positions, of which the upper five bits
    /// choose the byte.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn in_block_256(block: &[u8; 32], hash: u64, probes: u32) -> bool {
        let (halves, _) = block.as_chunks::<16>();
        let table = uint8x16x2_t(load(&halves[0]), load(&halves[1]));
        let mut left = probes;
        for by in MULTIPLIERS {
            let positions = vcreate_u8(fold(hash, by));
            let bytes = vqtbl2_u8(table, vshr_n_u8::<3>(positions));
            if !all_set(bytes, vand_u8(positions, vdup_n_u8(7)), left) {
                return false;
            }
            if left <= OF_BLOCK {
                break;
            }
            left -= OF_BLOCK;
        }
        true
    }

    /// All seven probes of a remix at once: of a position the upper six bits choose the byte.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn in_line_512(line: &[u8; 64], hash: u64, probes: u32) -> bool {
        let (quarters, _) = line.as_chunks::<16>();
        let [a, b, c, d] = std::array::from_fn(|quarter| load(&quarters[quarter]));
        let table = uint8x16x4_t(a, b, c, d);
        let mut left = probes;
        for by in MULTIPLIERS {
            let remix = vdupq_n_u64(fold(hash, by));
            // Shifts to the left by less than nothing.
            let [first, second, third, last] = [0i64, -18, -36, -54].map(|shift| {
                let pair = [shift, shift - 9].map(|shift| vcreate_u64(shift as u64));
                let shifts = vreinterpretq_s64_u64(vcombine_u64(pair[0], pair[1]));
                vreinterpretq_u32_u64(vshlq_u64(remix, shifts))
            });
            let positions = vuzp1q_u16(
                vreinterpretq_u16_u32(vuzp1q_u32(first, second)),
                vreinterpretq_u16_u32(vuzp1q_u32(third, last)),
            );
            let places = vand_u8(vshrn_n_u16::<3>(positions), vdup_n_u8(63));
            let bits = vand_u8(vmovn_u16(positions), vdup_n_u8(7));
            if !all_set(vqtbl4_u8(table, places), bits, left.min(OF_LINE)) {
                return false;
            }
            if left <= OF_LINE {
                break;
            }
            left -= OF_LINE;
        }
        true
    }

    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn in_split_block(block: &[u8; 32], hash: u64) -> bool {
        let (halves, _) = block.as_chunks::<16>();
        let missing = [0, 1].map(|half| {
            let [a, b, c, d] = std::array::from_fn(|lane| u64::from(SALTS[half * 4 + lane]));
            let salts = vcombine_u64(vcreate_u64(a | b << 32), vcreate_u64(c | d << 32));
            let product = vmulq_u32(vdupq_n_u32(hash as u32), vreinterpretq_u32_u64(salts));
            let places = vreinterpretq_s32_u32(vshrq_n_u32::<27>(product));
            let mask = vshlq_u32(vdupq_n_u32(1), places);
            vbicq_u32(mask, vreinterpretq_u32_u8(load(&halves[half])))
        });
        vmaxvq_u32(vorrq_u32(missing[0], missing[1])) == 0
    }

    #[target_feature(enable = "neon")]
    pub(super) fn lines_512(lines: &[[u8; 64]], hashes: &[u64], probes: u32, found: &mut [bool]) {
        for (hash, found) in hashes.iter().zip(found) {
            let line = lines.get(line_of(*hash, lines.len() as u64) as usize);
            *found = line.is_none_or(|line| in_line_512(line, *hash, probes));
        }
    }

    #[target_feature(enable = "neon")]
    pub(super) fn blocks_256(blocks: &[[u8; 32]], hashes: &[u64], probes: u32, found: &mut [bool]) {
        for (hash, found) in hashes.iter().zip(found) {
            let block = blocks.get(line_of(*hash, blocks.len() as u64) as usize);
            *found = block.is_none_or(|block| in_block_256(block, *hash, probes));
        }
    }

    #[target_feature(enable = "neon")]
    pub(super) fn split_blocks(blocks: &[[u8; 32]], hashes: &[u64], found: &mut [bool]) {
        for (hash, found) in hashes.iter().zip(found) {
            let block = blocks.get(block_of(*hash, blocks.len() as u64) as usize);
            *found = block.is_none_or(|block| in_split_block(block, *hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::InstructionSet;
    use crate::filter_builder::FilterBuilder;
    use crate::filter_view::FilterView;
    use crate::kind::FilterKind;
    use crate::options::FilterOptions;
    use crate::size::FilterSize;
    use std::cell::Cell;

    thread_local! {
        /// Whether this thread is to do without what the processor has.
        pub(super) static PORTABLE: Cell<bool> = const { Cell::new(false) };
    }

    fn portably<T>(work: impl FnOnce() -> T) -> T {
        PORTABLE.set(true);
        let result = work();
        PORTABLE.set(false);
        result
    }

    /// The suite compares with the oracle what this processor does; here what it does is compared
    /// with what processors without AVX2 do.
    #[test]
    fn the_portable_code_answers_the_same() {
        let mut state = 9u64;
        let mut draw = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
        };
        let kinds = [FilterKind::Blocked512, FilterKind::Blocked256, FilterKind::SplitBlock];
        // Few keys, and more than the processor's cache holds.
        for (keys, size) in [(1usize, 40.0), (40, 10.0), (600, 3.0), (300_000, 9.0)] {
            let hashes: Vec<u64> = (0..keys).map(|_| draw()).collect();
            let asked: Vec<u64> =
                hashes.iter().copied().take(500).chain((0..2_001).map(|_| draw())).collect();
            for kind in kinds {
                for probes in 1..=24 {
                    let probes = if kind == FilterKind::SplitBlock { 8 } else { probes };
                    if keys > 1_000 && probes % 8 != 0 {
                        continue;
                    }
                    let options = FilterOptions {
                        kind,
                        size: FilterSize::BitsPerKey(size),
                        probes: Some(probes),
                        ..FilterOptions::default()
                    };
                    let mut builder = FilterBuilder::new(options).expect("good options");
                    hashes.iter().for_each(|hash| builder.add(*hash));
                    let bytes = builder.finish().expect("a small filter");
                    let view = FilterView::parse(&bytes).expect("it was built just now");
                    let answers = || {
                        let mut found = vec![false; asked.len()];
                        view.contains_batch(&asked, &mut found);
                        let single: Vec<bool> =
                            asked.iter().map(|hash| view.contains(*hash)).collect();
                        assert!(found == single, "{kind}, {probes} probes");
                        found
                    };
                    assert!(answers() == portably(answers), "{kind}, {probes} probes");
                }
            }
        }
    }

    #[test]
    fn the_processor_is_asked() {
        let portable = portably(InstructionSet::of_this_processor);
        assert_eq!(portable, InstructionSet::Portable);
        if cfg!(target_arch = "aarch64") {
            assert_eq!(InstructionSet::of_this_processor(), InstructionSet::Neon);
        }
    }
}
