//! MetroHash64 by J. Andrew Rogers.
//!
//! The crate `metrohash` reads words in the machine's byte order, through unsafe code.

const K0: u64 = 0xd6d0_18f5;
const K1: u64 = 0xa2aa_033b;
const K2: u64 = 0x6299_2fc1;
const K3: u64 = 0x30bc_5b29;

/// The hash of `key` under `seed`.
pub(super) fn hash(seed: u64, key: &[u8]) -> u64 {
    let mut state = seed.wrapping_add(K2).wrapping_mul(K0);
    let (blocks, mut rest) = key.as_chunks::<32>();
    if !blocks.is_empty() {
        state = state.wrapping_add(of_blocks(state, blocks));
    }
    if let Some((block, after)) = rest.split_first_chunk::<16>() {
        state = state.wrapping_add(of_half_block(state, block));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<8>() {
        state = step(state, u64::from_le_bytes(*word), 55);
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        state = step(state, u64::from(u32::from_le_bytes(*word)), 26);
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<2>() {
        state = step(state, u64::from(u16::from_le_bytes(*word)), 48);
        rest = after;
    }
    if let Some(byte) = rest.first() {
        state = step(state, u64::from(*byte), 37);
    }
    state = (state ^ state.rotate_right(28)).wrapping_mul(K0);
    state ^ state.rotate_right(29)
}

fn step(state: u64, word: u64, turn: u32) -> u64 {
    let state = state.wrapping_add(word.wrapping_mul(K3));
    state ^ state.rotate_right(turn).wrapping_mul(K1)
}

/// Hashes whole blocks in four lanes, and joins the lanes.
fn of_blocks(start: u64, blocks: &[[u8; 32]]) -> u64 {
    let mut lanes = [start; 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, (word, multiplier)) in words.iter().zip([K0, K1, K2, K3]).enumerate() {
            let more = u64::from_le_bytes(*word).wrapping_mul(multiplier);
            let turned = lanes[lane].wrapping_add(more).rotate_right(29);
            lanes[lane] = turned.wrapping_add(lanes[(lane + 2) % 4]);
        }
    }
    let [mut v0, mut v1, mut v2, mut v3] = lanes;
    let join = |sum: u64, multiplier: u64, third: u64, last: u64| {
        let product = sum.wrapping_mul(multiplier).wrapping_add(third);
        product.rotate_right(37).wrapping_mul(last)
    };
    v2 ^= join(v0.wrapping_add(v3), K0, v1, K1);
    v3 ^= join(v1.wrapping_add(v2), K1, v0, K0);
    v0 ^= join(v0.wrapping_add(v2), K0, v3, K1);
    v1 ^= join(v1.wrapping_add(v3), K1, v2, K0);
    v0 ^ v1
}

fn of_half_block(state: u64, block: &[u8; 16]) -> u64 {
    let both = u128::from_le_bytes(*block);
    let lane =
        |word: u64| state.wrapping_add(word.wrapping_mul(K2)).rotate_right(29).wrapping_mul(K3);
    let (mut first, mut second) = (lane(both as u64), lane((both >> 64) as u64));
    first ^= first.wrapping_mul(K0).rotate_right(21).wrapping_add(second);
    second ^= second.wrapping_mul(K3).rotate_right(21).wrapping_add(first);
    second
}
