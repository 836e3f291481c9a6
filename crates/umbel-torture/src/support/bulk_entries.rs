//! Keys and values of stores with very many of them.

use crate::random::join;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 100;

/// An error in words.
pub fn said(error: umbel::Error) -> String {
    error.to_string()
}

/// A key's bytes; numbers in order give keys in random order.
pub fn key(seed: u64, number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&join(seed, number).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

/// The value a key has after it was written for the `turn`-th time.
pub fn value(number: u64, turn: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    let mut word = join(number, turn);
    for bytes in value.chunks_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    value
}
