//! Solves the band of a part from its last slot to its first.

use super::parity::{LANES, parities};
use super::place::noise;
use super::shape::{BLOCK, Columns};

/// How many columns are solved together, one in each byte of a word.
const TOGETHER: usize = 8;
/// How many slots are solved together.
const STEP: usize = 8;

/// Writes the words of a part to `words`, block by block.
///
/// `slots` is the band, `first_slot` how many slots other parts have before it: slots that no row
/// determines get random bits, and other ones in each part.
///
/// REQUIRES: `words` has as many words as the columns say.
pub(super) fn solve(slots: &[u64], columns: Columns, first_slot: u64, words: &mut [u64]) {
    let blocks = slots.len() as u64 / BLOCK;
    let upper_from = columns.upper_from(blocks);
    let all = columns.all + u32::from(upper_from < blocks);
    for (pass, first) in (0..all as usize).step_by(TOGETHER).enumerate() {
        // Bit `n` of each is the column's bit in the slot `n` behind the one to be solved next.
        let mut solved = [0u64; TOGETHER];
        for (block, slots) in slots.chunks_exact(BLOCK as usize).enumerate().rev() {
            for (step, rows) in slots.chunks_exact(STEP).enumerate().rev() {
                let slot = first_slot + block as u64 * BLOCK + (step * STEP) as u64;
                let fresh = solve_step(rows, &solved, |row| noise(slot + row, pass));
                for (column, solved) in solved.iter_mut().enumerate() {
                    *solved = *solved << STEP | fresh >> (8 * column) & 0xff;
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

/// Byte `c` of the result has the bits of column `c` in the eight slots of `rows`.
///
/// What the slots behind contribute is found for all eight rows at once, for these do not wait for
/// each other; what the eight slots contribute to each other is added from the last to the first.
#[inline(always)]
fn solve_step(rows: &[u64], solved: &[u64; TOGETHER], noise: impl Fn(u64) -> u64) -> u64 {
    let mut sums = [0u64; STEP];
    for (row, (sum, bits)) in sums.iter_mut().zip(rows).enumerate() {
        let behind = bits >> 1 >> (STEP - 1 - row);
        *sum = parities(solved.map(|column| column & behind));
    }
    let mut fresh = 0;
    for row in (0..STEP).rev() {
        let bits = rows[row];
        let (before, behind) = sums.split_at(row + 1);
        let mut value = if bits == 0 { noise(row as u64) & LANES } else { before[row] };
        for (distance, fresh) in behind.iter().enumerate() {
            value ^= fresh & (bits >> (distance + 1) & 1).wrapping_neg();
        }
        sums[row] = value;
        fresh |= value << row;
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::super::band::Band;
    use super::super::place::Row;
    use super::*;

    fn bit(words: &[u64], columns: Columns, blocks: u64, slot: u64, column: u32) -> u64 {
        let from = columns.upper_from(blocks);
        let at = columns.words_before(slot / BLOCK, from) + u64::from(column);
        words[at as usize] >> (slot % BLOCK) & 1
    }

    /// Every row of every column, bit by bit, and no column that is always the same.
    #[test]
    fn every_row_gives_zeros_in_every_column() {
        for (blocks, keys, rate) in
            [(2, 0, 0.01), (2, 60, 0.3), (5, 230, 1e-3), (40, 2_400, 2e-4), (7, 900, 1e-7)]
        {
            let columns = Columns::of(rate);
            let left = (0..keys as u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut band = Band::default();
            band.fill(left.clone(), blocks, 1);
            let mut words = vec![0; columns.words(blocks) as usize];
            solve(band.slots(), columns, 1 << 40, &mut words);
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
