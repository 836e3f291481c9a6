//! Start and bits of the row of a hash.

use crate::hash::keyed_hash::fold;
use crate::probe::cache_line::line_of;
use crate::ribbon::column_layout::BLOCK;

/// FORMAT: odd constants from the golden ratio and the square roots of 3, 7 and 13.
const MULTIPLIERS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b, 0xa54f_f53a_5f1d_36f1, 0x9b05_688c_2b3e_6c1f];

/// FORMAT: constant by which a seed changes the remaining bits of a mixed hash.
static SEEDED: [u64; 256] = {
    let mut seeded = [0; 256];
    let mut seed = 0;
    while seed < seeded.len() {
        seeded[seed] = MULTIPLIERS[2].wrapping_mul(seed as u64 + 1);
        seed += 1;
    }
    seeded
};

/// FORMAT: mixes a hash. The high bits of the result choose the part.
#[inline(always)]
pub(super) fn mix(hash: u64) -> u64 {
    fold(hash ^ MULTIPLIERS[3], MULTIPLIERS[0])
}

/// FORMAT: the part of a mixed hash among `parts`, and the remaining bits, which distinguish hashes
/// of a part.
#[inline(always)]
pub(super) fn part_of(mixed: u64, parts: u64) -> (usize, u64) {
    (line_of(mixed, parts) as usize, mixed.wrapping_mul(parts))
}

/// A row of the band: the slot in which it begins, and 64 bits of which the lowest is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) start: usize,
    pub(super) bits: u64,
}

impl Row {
    /// FORMAT: the row of the remaining bits by [`part_of`], in a part of `blocks` blocks with a
    /// seed.
    ///
    /// REQUIRES: the part has at least two blocks. Rows begin in any block but the last.
    #[inline(always)]
    pub(super) fn of(left: u64, blocks: u64, seed: u8) -> Row {
        let mixed = fold(left ^ SEEDED[usize::from(seed)], MULTIPLIERS[1]);
        let start = line_of(mixed, (blocks - 1) * BLOCK);
        Row { start: start as usize, bits: fold(mixed, MULTIPLIERS[0]) | 1 }
    }
}

/// FORMAT: eight random bits, each the lowest of a byte, for a slot that no row determines.
#[inline(always)]
pub(super) fn noise(slot: u64, pass: usize) -> u64 {
    let mixed = fold(slot ^ (pass as u64) << 56 ^ MULTIPLIERS[2], MULTIPLIERS[3]);
    fold(mixed, MULTIPLIERS[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_range_and_begin_with_a_bit() {
        for number in 0..10_000u64 {
            let (part, left) = part_of(mix(number), 7);
            let row = Row::of(left, 5, number as u8);
            assert!(part < 7 && row.start < 4 * 64 && row.bits % 2 == 1);
        }
    }
}
