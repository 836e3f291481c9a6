//! Solves the band of a part from its last slot to its first.
//!
//! Eight columns are solved together: a slot is a byte with its bits in these columns. A slot is
//! the sum of up to 63 later slots, which would take up to 63 steps. So a table for every eight
//! solved slots has the sums of all their subsets, and a row adds one sum from each of eight
//! tables.

use crate::ribbon::column_layout::{BLOCK, ColumnLayout};
use crate::ribbon::row_hash::noise;

/// Number of columns that are solved together, and of slots that share a table.
const TOGETHER: usize = 8;

/// The sums of all subsets of eight slots: bit `n` of the index stands for slot `n`.
type Sums = [u8; 256];

/// Writes the words of a part to `words`, block by block.
///
/// `slots` is the band, `first_slot` the number of slots of earlier parts. Slots that no row
/// determines get random bits, which differ between parts.
///
/// REQUIRES: `words` has the number of words for the part's columns.
pub(super) fn back_substitute(
    slots: &[u64],
    columns: ColumnLayout,
    first_slot: u64,
    words: &mut [u64],
) {
    let blocks = slots.len() as u64 / BLOCK;
    let upper_from = columns.upper_from(blocks);
    let all = columns.all + u32::from(upper_from < blocks);
    for (pass, first) in (0..all as usize).step_by(TOGETHER).enumerate() {
        // Table `n % 8` is that of the `n`th eight slots.
        let mut tables = [[0; 256]; TOGETHER];
        for (block, slots) in slots.chunks_exact(BLOCK as usize).enumerate().rev() {
            let mut solved = [0u64; TOGETHER];
            for (number, rows) in slots.chunks_exact(TOGETHER).enumerate().rev() {
                let slot = first_slot + block as u64 * BLOCK + (number * TOGETHER) as u64;
                let fresh =
                    back_substitute_eight(rows, &tables, number, |row| noise(slot + row, pass));
                fill_sums(fresh, &mut tables[number]);
                let by_column = transposed(u64::from_le_bytes(fresh));
                for (column, solved) in solved.iter_mut().enumerate() {
                    *solved = *solved << TOGETHER | by_column >> (8 * column) & 0xff;
                }
            }
            let block = block as u64;
            let at = columns.words_before(block, upper_from) as usize;
            let width = (columns.all + u32::from(block >= upper_from)) as usize;
            let count = width.saturating_sub(first).min(TOGETHER);
            words[at + first..][..count].copy_from_slice(&solved[..count]);
        }
    }
}

/// Solves the eight slots in which these rows begin, and stores their sums in table `number % 8`.
///
/// The contributions of later slots are computed first for all eight slots, because they do not
/// depend on each other. The eight slots' contributions to each other are added from the last to
/// the first.
#[inline(always)]
fn back_substitute_eight(
    rows: &[u64],
    tables: &[Sums; TOGETHER],
    number: usize,
    noise: impl Fn(u64) -> u64,
) -> [u8; TOGETHER] {
    let mut sums = [0u8; TOGETHER];
    for (row, (sum, bits)) in sums.iter_mut().zip(rows).enumerate() {
        let following = bits >> 1 >> (TOGETHER - 1 - row);
        for eight in 0..TOGETHER {
            let subset = (following >> (8 * eight)) as u8;
            *sum ^= tables[(number + 1 + eight) % TOGETHER][usize::from(subset)];
        }
    }
    let mut slots = 0;
    for (row, (sum, bits)) in sums.iter().zip(rows).enumerate().rev() {
        let slot = if *bits == 0 {
            lowest_bits(noise(row as u64))
        } else {
            *sum ^ joined(slots & spread((bits >> 1) as u8))
        };
        slots = slots << 8 | u64::from(slot);
    }
    slots.to_le_bytes()
}

/// All eight bytes, combined by exclusive or.
#[inline(always)]
fn joined(bytes: u64) -> u8 {
    let bytes = bytes ^ bytes >> 32;
    let bytes = bytes ^ bytes >> 16;
    (bytes ^ bytes >> 8) as u8
}

/// A byte of ones for each bit that is set.
#[inline(always)]
fn spread(bits: u8) -> u64 {
    let apart = (u64::from(bits & 0x7f).wrapping_mul(0x0002_0408_1020_4081)
        | u64::from(bits & 0x80) << 49)
        & 0x0101_0101_0101_0101;
    apart.wrapping_mul(0xff)
}

/// Fills a table, eight sums at a time. The sums of the first three slots are one word, and each
/// further slot is added to all eight bytes of a word.
#[inline(always)]
fn fill_sums(slots: [u8; TOGETHER], table: &mut Sums) {
    const ALL: u64 = 0x0101_0101_0101_0101;
    let [a, b, c, d, e, f, g, h] = slots.map(u64::from);
    let three = (a * 0x0100_0100_0100_0100) ^ (b * 0x0101_0000_0101_0000) ^ (c * (ALL << 32));
    let [d, e, f, g, h] = [d * ALL, e * ALL, f * ALL, g * ALL, h * ALL];
    let five = [three, three ^ d, three ^ e, three ^ d ^ e];
    let last = [0, f, g, f ^ g, h, f ^ h, g ^ h, f ^ g ^ h];
    let (rows, _) = table.as_chunks_mut::<32>();
    for (row, last) in rows.iter_mut().zip(last) {
        let (words, _) = row.as_chunks_mut::<8>();
        for (word, five) in words.iter_mut().zip(five) {
            *word = (five ^ last).to_le_bytes();
        }
    }
}

/// The lowest bit of each of eight bytes.
fn lowest_bits(bytes: u64) -> u8 {
    ((bytes & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Bit `b` of byte `a` becomes bit `a` of byte `b`: exchanges the two off-diagonal quarters of
/// squares of two by two bits, then of two by two such squares, and once more.
#[inline(always)]
fn transposed(square: u64) -> u64 {
    [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0xf0f0_f0f0)].into_iter().fold(
        square,
        |square: u64, (distance, quarter)| {
            let differ = (square ^ square >> distance) & quarter;
            square ^ differ ^ differ << distance
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ribbon::banding::Banding;
    use crate::ribbon::row_hash::Row;

    fn bit(words: &[u64], columns: ColumnLayout, blocks: u64, slot: u64, column: u32) -> u64 {
        let from = columns.upper_from(blocks);
        let at = columns.words_before(slot / BLOCK, from) + u64::from(column);
        words[at as usize] >> (slot % BLOCK) & 1
    }

    #[test]
    fn squares_are_transposed_and_lowest_bits_found() {
        let square = 0x0123_4567_89ab_cdef_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = |square: u64, a: u32, b: u32| square >> (8 * a + b) & 1;
        for (a, b) in (0..64).map(|at| (at / 8, at % 8)) {
            assert_eq!(bit(transposed(square), a, b), bit(square, b, a));
            assert_eq!(u64::from(lowest_bits(square) >> a & 1), bit(square, a, 0));
        }
        let mut table = [9; 256];
        fill_sums([1, 2, 4, 8, 16, 32, 64, 128], &mut table);
        assert!(table.into_iter().eq(0..=255));
    }

    /// Every row of every column, bit by bit, and no column that is always the same.
    #[test]
    fn every_row_gives_zeros_in_every_column() {
        for (blocks, keys, rate) in
            [(2, 0, 0.01), (2, 60, 0.3), (5, 230, 1e-3), (40, 2_400, 2e-4), (7, 900, 1e-7)]
        {
            let columns = ColumnLayout::of(rate);
            let left = (0..keys as u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut band = Banding::default();
            band.fill(left.clone(), blocks, 1);
            let mut words = vec![0; columns.words(blocks) as usize];
            back_substitute(band.slots(), columns, 1 << 40, &mut words);
            let from = columns.upper_from(blocks);
            for left in left {
                let row = Row::of(left, blocks, 1);
                let block = row.start as u64 / BLOCK;
                let width = columns.all + u32::from(block >= from);
                for column in 0..width {
                    let sum = (0..64).filter(|at| row.bits >> at & 1 == 1).fold(0, |sum, at| {
                        sum ^ bit(&words, columns, blocks, row.start as u64 + at, column)
                    });
                    assert_eq!(sum, 0, "{blocks} blocks, column {column}");
                }
            }
            let set: u32 = words.iter().map(|word| word.count_ones()).sum();
            let share = f64::from(set) / (words.len() as f64 * 64.0);
            assert!(keys == 900 || (0.4..0.6).contains(&share), "{share} of the bits are set");
        }
    }
}
