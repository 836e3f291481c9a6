//! `FxHasher` of rustc-hash 2.1 for one `write` on a platform with 64 bits.
//!
//! The crate `rustc-hash` promises no stable result and computes another result on platforms with
//! 32 bits, so this module fixes version 2.1. The rustc hash is meant for hash tables in memory.
//! Only the middle bits of its state are well mixed, and a final rotation moves them to the top.

use crate::hash::keyed_hash::fold;

const MULTIPLIER: u64 = 0xf135_7aea_2e62_a9c5;
const FIRST: u64 = 0x243f_6a88_85a3_08d3;
const SECOND: u64 = 0x1319_8a2e_0370_7344;
const AGAINST_ZEROS: u64 = 0xa409_3822_299f_31d0;

/// The hash of `key` with the initial state `seed`; the default of the crate `rustc-hash` is 0.
pub(super) fn hash(seed: u64, key: &[u8]) -> u64 {
    seed.wrapping_add(compressed(key)).wrapping_mul(MULTIPLIER).rotate_left(26)
}

fn compressed(key: &[u8]) -> u64 {
    let (mut first, mut second) = (FIRST, SECOND);
    if let Some(last) = key.last_chunk::<16>().filter(|_| key.len() > 16) {
        // The last block is taken below, whole or not, so whole blocks end before the last byte.
        let (blocks, _) = key[..key.len() - 1].as_chunks::<16>();
        for block in blocks {
            let [low, high] = words(block);
            (first, second) = (second, fold(first ^ low, AGAINST_ZEROS ^ high));
        }
        let [low, high] = words(last);
        first ^= low;
        second ^= high;
    } else if let (Some(head), Some(tail)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        first ^= u64::from_le_bytes(*head);
        second ^= u64::from_le_bytes(*tail);
    } else if let (Some(head), Some(tail)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        first ^= u64::from(u32::from_le_bytes(*head));
        second ^= u64::from(u32::from_le_bytes(*tail));
    } else if let (Some(head), Some(tail)) = (key.first(), key.last()) {
        first ^= u64::from(*head);
        second ^= u64::from(*tail) << 8 | u64::from(key[key.len() / 2]);
    }
    fold(first, second) ^ key.len() as u64
}

fn words(block: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*block);
    [both as u64, (both >> 64) as u64]
}
