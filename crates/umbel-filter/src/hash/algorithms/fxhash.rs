//! `FxHasher64` of fxhash 0.2 for one `write` on a little-endian machine.
//!
//! The crate is no longer maintained, and reads words in the machine's byte order. So this module
//! has its few lines. Words go through one multiplication only: no bit of a key reaches a lower
//! one.

const MULTIPLIER: u64 = 0x517c_c1b7_2722_0a95;

/// The hash of `key`, begun with `seed`; the crate begins with 0.
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
