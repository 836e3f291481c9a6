//! The 32-bit hash of LevelDB's filters and cache, which resembles MurmurHash1.

const MULTIPLIER: u32 = 0xc6a4_a793;

/// The hash of `key` under `seed`; LevelDB's filters have the seed `bc9f1d34`.
pub(super) fn hash(seed: u32, key: &[u8]) -> u32 {
    let (words, rest) = key.as_chunks::<4>();
    let mut state = seed ^ (key.len() as u32).wrapping_mul(MULTIPLIER);
    for word in words {
        state = state.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(MULTIPLIER);
        state ^= state >> 16;
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u32::from(*byte));
        state = state.wrapping_add(last).wrapping_mul(MULTIPLIER);
        state ^= state >> 24;
    }
    state
}
