//! Keys and values of very large stores.

use crate::support::derived_seed::derive_seed;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 100;

/// Converts an error to text.
pub fn error_text(error: umbel::Error) -> String {
    error.to_string()
}

/// Returns the bytes of a key; numbers in order give keys in random order.
pub fn key(seed: u64, number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&derive_seed(seed, number).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Returns the value of a key after its `turn`-th write.
pub fn value(number: u64, turn: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    let mut word = derive_seed(number, turn);
    for bytes in value.chunks_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    value
}
