//! `FxHasher64` of fxhash 0.2 for one `write` on a little-endian machine.
//!
//! The crate `fxhash` is no longer maintained, and reads words in the machine's byte order. So this
//! module reimplements its few lines. Each word is multiplied only once, so that a bit of a key
//! never affects lower bits of the hash.

const MULTIPLIER: u64 = 0x517c_c1b7_2722_0a95;

/// The hash of `key` with the initial state `seed`; the crate `fxhash` begins with 0.
pub(super) fn hash(seed: u64, key: &[u8]) -> u64 {
    let (words, rest) = key.as_chunks::<8>();
    let add = |state: u64, word: u64| (state.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
    let mut state = words.iter().fold(seed, |state, word| add(state, u64::from_le_bytes(*word)));
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        state = add(state, u64::from(u32::from_le_bytes(*half)));
    }
    rest.iter().fold(state, |state, byte| add(state, u64::from(*byte)))
}
