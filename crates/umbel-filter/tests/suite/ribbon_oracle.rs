//! The oracle of ribbon filters: a reader written once more from `docs/formats/filter-ribbon.md`,
//! bit by bit.

use crate::fuse_oracle::number;

const C: [u64; 4] =
    [0x9e3779b97f4a7c15, 0xbb67ae8584caa73b, 0xa54ff53a5f1d36f1, 0x9b05688c2b3e6c1f];

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product % (1 << 64)) as u64 ^ (product / (1 << 64)) as u64
}

fn share(of: u64, among: u64) -> u64 {
    (u128::from(of) * u128::from(among) / (1 << 64)) as u64
}

/// Whether the filter in `bytes` lets `hash` through.
pub fn contains(bytes: &[u8], hash: u64) -> bool {
    let word = |at: u64| bytes.get(64 + at as usize * 8..).and_then(|from| from.get(..8));
    let columns = u64::from(bytes[28]);
    let parts = number(&bytes[30..34]);
    let lower = number(&bytes[34..38]);

    let mixed = fold(hash ^ C[3], C[0]);
    let left = ((u128::from(mixed) * u128::from(parts)) % (1 << 64)) as u64;
    let Some(part) = word(share(mixed, parts)) else { return true };
    let (seed, blocks, first) = (number(&part[..1]), number(&part[1..3]), number(&part[3..]));
    if blocks < 2 {
        return true;
    }
    let seed = (u128::from(C[2]) * u128::from(seed + 1) % (1 << 64)) as u64;
    let row = fold(left ^ seed, C[1]);
    let (start, bits) = (share(row, (blocks - 1) * 64), fold(row, C[0]) | 1);

    let upper_from = (blocks - 1) * lower / 65536 + lower / 65536;
    let words_of = |block| columns + u64::from(block >= upper_from);
    let words_before = |block| (0..block).map(words_of).sum::<u64>();
    (0..words_of(start / 64)).all(|column| {
        let mut sum = 0;
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let slot = start + bit;
            let at = parts + first + words_before(slot / 64) + column;
            let Some(word) = word(at) else { return true };
            sum ^= number(word) >> (slot % 64) & 1;
        }
        sum == 0
    })
}
