//! Keys of 16 bytes without any order, and their hashes.

use umbel_filter::{HashSecret, hash_key};

/// A key.
pub type Key = [u8; 16];

/// The key of that number; different ones have different keys.
pub fn key(number: u64) -> Key {
    // SplitMix64, which maps 64 bits one to one.
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^= state >> 31;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&state.to_be_bytes());
    key[8..].copy_from_slice(&(!state).rotate_left(23).to_be_bytes());
    key
}

/// The keys of these numbers.
pub fn keys(numbers: impl Iterator<Item = u64>) -> Vec<Key> {
    numbers.map(key).collect()
}

/// The hash that filters are given where hashing is not to be measured.
pub fn hashes(keys: &[Key]) -> Vec<u64> {
    let secret = secret();
    keys.iter().map(|key| hash_key(&secret, key)).collect()
}

/// The secret of every keyed hash here.
pub fn secret() -> HashSecret {
    HashSecret::from_seed(*b"filters compared")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_and_hashes_are_different() {
        let keys = keys(0..100_000);
        let hashes: HashSet<u64> = hashes(&keys).into_iter().collect();
        assert_eq!(hashes.len(), keys.len());
        assert_eq!(keys.into_iter().collect::<HashSet<_>>().len(), hashes.len());
    }
}
