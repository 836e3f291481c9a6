//! Random keys of 16 bytes, and their hashes.

use umbel_filter::{HashSecret, hash_key};

/// Key of 16 bytes.
pub type Key = [u8; 16];

/// Returns the key of a number; different numbers have different keys.
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

/// Returns the keys of these numbers.
pub fn keys(numbers: impl Iterator<Item = u64>) -> Vec<Key> {
    numbers.map(key).collect()
}

/// Returns the hashes of keys, for filters whose hashing is not measured.
pub fn hashes(keys: &[Key]) -> Vec<u64> {
    let secret = secret();
    keys.iter().map(|key| hash_key(&secret, key)).collect()
}

/// Returns the secret of every keyed hash in the comparison.
pub fn secret() -> HashSecret {
    HashSecret::from_seed(*b"filters compared")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_and_hashes_are_distinct() {
        let keys = keys(0..100_000);
        let hashes: HashSet<u64> = hashes(&keys).into_iter().collect();
        assert_eq!(hashes.len(), keys.len());
        assert_eq!(keys.into_iter().collect::<HashSet<_>>().len(), hashes.len());
    }
}
