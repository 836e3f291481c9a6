//! SpookyHash version 2 by Bob Jenkins, its low 64 bits.
//!
//! The published code reads words in the machine's byte order; this module gives its results on
//! little-endian machines.

/// Initial value of words that no seed fills: odd, and without a regular pattern.
const FILL: u64 = 0xdead_beef_dead_beef;
/// Shorter keys are hashed by the short form.
const LONG_FROM: usize = 192;

const SHORT_TURNS: [u32; 12] = [50, 52, 30, 41, 54, 48, 38, 37, 62, 34, 5, 36];
const SHORT_LAST_TURNS: [u32; 11] = [15, 52, 26, 51, 28, 9, 47, 54, 32, 25, 63];
const LONG_TURNS: [u32; 12] = [11, 32, 43, 31, 17, 28, 39, 57, 55, 54, 22, 46];
const LONG_LAST_TURNS: [u32; 12] = [44, 15, 34, 21, 38, 33, 10, 13, 38, 53, 42, 54];

/// The hash of `key` under the two seeds.
pub(super) fn hash(first: u64, second: u64, key: &[u8]) -> u64 {
    if key.len() < LONG_FROM { short(first, second, key) } else { long(first, second, key) }
}

fn short(first: u64, second: u64, key: &[u8]) -> u64 {
    let mut state = [first, second, FILL, FILL];
    let (blocks, mut rest) = key.as_chunks::<32>();
    for block in blocks {
        let (halves, _) = block.as_chunks::<16>();
        add(&mut state[2..], halves[0]);
        short_mix(&mut state);
        add(&mut state[..2], halves[1]);
    }
    if let Some((half, after)) = rest.split_first_chunk::<16>() {
        add(&mut state[2..], *half);
        short_mix(&mut state);
        rest = after;
    }
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    add(&mut state[2..], last);
    if rest.is_empty() {
        state[2] = state[2].wrapping_add(FILL);
        state[3] = state[3].wrapping_add(FILL);
    }
    state[3] = state[3].wrapping_add((key.len() as u64) << 56);
    for (step, turn) in SHORT_LAST_TURNS.into_iter().enumerate() {
        let (here, before) = ((step + 3) % 4, (step + 2) % 4);
        state[here] ^= state[before];
        state[before] = state[before].rotate_left(turn);
        state[here] = state[here].wrapping_add(state[before]);
    }
    state[0]
}

/// Adds two words to two words of the state.
fn add(state: &mut [u64], half: [u8; 16]) {
    let (words, _) = half.as_chunks::<8>();
    for (state, word) in state.iter_mut().zip(words) {
        *state = state.wrapping_add(u64::from_le_bytes(*word));
    }
}

fn short_mix(state: &mut [u64; 4]) {
    for (step, turn) in SHORT_TURNS.into_iter().enumerate() {
        let here = (step + 2) % 4;
        state[here] = state[here].rotate_left(turn).wrapping_add(state[(step + 3) % 4]);
        state[step % 4] ^= state[here];
    }
}

fn long(first: u64, second: u64, key: &[u8]) -> u64 {
    let mut state: [u64; 12] = std::array::from_fn(|index| [first, second, FILL][index % 3]);
    let (blocks, rest) = key.as_chunks::<96>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (here, word) in words.iter().enumerate() {
            let before = (here + 11) % 12;
            state[here] = state[here].wrapping_add(u64::from_le_bytes(*word));
            state[(here + 2) % 12] ^= state[(here + 10) % 12];
            state[before] ^= state[here];
            state[here] = state[here].rotate_left(LONG_TURNS[here]);
            state[before] = state[before].wrapping_add(state[(here + 1) % 12]);
        }
    }
    let mut last = [0; 96];
    last[..rest.len()].copy_from_slice(rest);
    last[95] = rest.len() as u8;
    let (words, _) = last.as_chunks::<8>();
    for (state, word) in state.iter_mut().zip(words) {
        *state = state.wrapping_add(u64::from_le_bytes(*word));
    }
    for (step, turn) in LONG_LAST_TURNS.into_iter().enumerate().cycle().take(36) {
        let (before, after) = ((step + 11) % 12, (step + 1) % 12);
        state[before] = state[before].wrapping_add(state[after]);
        state[(step + 2) % 12] ^= state[before];
        state[after] = state[after].rotate_left(turn);
    }
    state[0]
}
