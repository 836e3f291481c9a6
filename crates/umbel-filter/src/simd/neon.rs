//! Bytes of a block looked up in registers with NEON.
#![forbid(unsafe_code)]

use crate::hash::keyed_hash::fold;
use crate::probe::cache_line::{MULTIPLIERS, Words, line_of};
use crate::probe::split_block_lanes::{SALTS, block_of};
use crate::simd::{ProbeInput, load_16 as load};
use std::arch::aarch64::{
    uint8x8_t, uint8x16x2_t, uint8x16x4_t, vand_u8, vbic_u8, vbicq_u32, vcombine_u64, vcreate_u8,
    vcreate_u64, vdup_n_u8, vdupq_n_u32, vdupq_n_u64, vget_lane_u64, vmaxvq_u32, vmovn_u16,
    vmulq_u32, vneg_s8, vorrq_u32, vqtbl2_u8, vqtbl4_u8, vreinterpret_s8_u8, vreinterpret_u64_u8,
    vreinterpretq_s32_u32, vreinterpretq_s64_u64, vreinterpretq_u16_u32, vreinterpretq_u32_u8,
    vreinterpretq_u32_u64, vshl_u8, vshlq_u32, vshlq_u64, vshr_n_u8, vshrn_n_u16, vshrq_n_u32,
    vuzp1q_u16, vuzp1q_u32,
};

/// Number of probes of one remix in a line of 512 bits, and in a block of 256.
const OF_LINE: u32 = 7;
const OF_BLOCK: u32 = 8;

/// Whether the first `count` of eight probes, each with its byte and its bit in that byte, find
/// their bit set.
#[inline]
#[target_feature(enable = "neon")]
fn all_set(bytes: uint8x8_t, bits: uint8x8_t, count: u32) -> bool {
    let ones = 0x0101_0101_0101_0101u64 >> (64 - 8 * count.clamp(1, 8));
    let shifted = vshl_u8(bytes, vneg_s8(vreinterpret_s8_u8(bits)));
    let missing = vbic_u8(vcreate_u8(ones), shifted);
    vget_lane_u64::<0>(vreinterpret_u64_u8(missing)) == 0
}

/// All eight probes of a remix at once: its bytes are positions, of which the upper five bits
/// choose the byte.
#[inline]
#[target_feature(enable = "neon")]
fn in_block_256(block: &[u8; 32], hash: u64, probes: u32) -> bool {
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
pub(super) fn in_line_512(line: &impl Words, hash: u64, probes: u32) -> bool {
    let words: [[u8; 8]; 8] = std::array::from_fn(|word| line.word(word).to_le_bytes());
    let (quarters, _) = words.as_flattened().as_chunks::<16>();
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
fn in_split_block(block: &[u8; 32], hash: u64) -> bool {
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
pub(super) fn lines_512(lines: &[impl Words], hashes: &[u64], probes: u32, found: &mut [bool]) {
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

/// Whether the line of `hash` has its bits.
#[target_feature(enable = "neon")]
pub(super) fn whole_512(input: &ProbeInput<'_>, hash: u64) -> bool {
    let (lines, _) = input.payload.as_chunks::<64>();
    let line = lines.get(line_of(hash, lines.len() as u64) as usize);
    line.is_none_or(|line| in_line_512(line, hash, input.probes.into()))
}

/// Whether the block of `hash` has its bits.
#[target_feature(enable = "neon")]
pub(super) fn whole_256(input: &ProbeInput<'_>, hash: u64) -> bool {
    let (blocks, _) = input.payload.as_chunks::<32>();
    let block = blocks.get(line_of(hash, blocks.len() as u64) as usize);
    block.is_none_or(|block| in_block_256(block, hash, input.probes.into()))
}

/// Whether the split block of `hash` has its bits.
#[target_feature(enable = "neon")]
pub(super) fn whole_split(input: &ProbeInput<'_>, hash: u64) -> bool {
    let (blocks, _) = input.payload.as_chunks::<32>();
    let block = blocks.get(block_of(hash, blocks.len() as u64) as usize);
    block.is_none_or(|block| in_split_block(block, hash))
}
