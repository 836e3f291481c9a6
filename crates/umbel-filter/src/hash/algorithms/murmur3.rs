//! MurmurHash3 for 32 bits (x86) and for 128 (x64), by Austin Appleby.
//!
//! The existing crates read through `io::Read` and return a result that cannot fail. Others contain
//! unsafe code and combine the halves in the machine's byte order.

/// The 32-bit hash of `key` under `seed`.
#[cfg(feature = "murmur3-32")]
pub(super) fn of_32_bits(seed: u32, key: &[u8]) -> u32 {
    let scramble =
        |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, rest) = key.as_chunks::<4>();
    let mut state = seed;
    for word in words {
        state = (state ^ scramble(u32::from_le_bytes(*word))).rotate_left(13);
        state = state.wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u32::from(*byte));
    state ^= scramble(last) ^ key.len() as u32;
    state = (state ^ state >> 16).wrapping_mul(0x85eb_ca6b);
    state = (state ^ state >> 13).wrapping_mul(0xc2b2_ae35);
    state ^ state >> 16
}

/// The 128-bit hash of `key` under `seed`, its low half first.
#[cfg(feature = "murmur3-128")]
pub(super) fn of_128_bits(seed: u32, key: &[u8]) -> [u64; 2] {
    let first = |word: u64| word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let second = |word: u64| word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (blocks, rest) = key.as_chunks::<16>();
    let (mut low, mut high) = (u64::from(seed), u64::from(seed));
    for block in blocks {
        let both = u128::from_le_bytes(*block);
        low = (low ^ first(both as u64)).rotate_left(27).wrapping_add(high);
        low = low.wrapping_mul(5).wrapping_add(0x52dc_e729);
        high = (high ^ second((both >> 64) as u64)).rotate_left(31).wrapping_add(low);
        high = high.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // Missing bytes are zeros, which both scramblings leave as they are.
    let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u128::from(*byte));
    low ^= first(last as u64) ^ key.len() as u64;
    high ^= second((last >> 64) as u64) ^ key.len() as u64;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high) = (super::finish_64(low), super::finish_64(high));
    low = low.wrapping_add(high);
    [low, high.wrapping_add(low)]
}

#[cfg(feature = "murmur3-128")]
const C1: u64 = 0x87c3_7b91_1142_53d5;
#[cfg(feature = "murmur3-128")]
const C2: u64 = 0x4cf5_ad43_2745_937f;
