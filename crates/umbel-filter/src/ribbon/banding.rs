//! Transforms the rows of a part so that every row begins in another slot.

use crate::ribbon::column_layout::BLOCK;
use crate::ribbon::row_hash::Row;

/// The band of one part: for each slot the bits of the row that begins in the slot, or 0 if none
/// does.
#[derive(Debug, Default)]
pub(super) struct Banding {
    slots: Vec<u64>,
    /// Number of rows that are sums of other rows.
    redundant: usize,
}

impl Banding {
    /// Computes the band of a part from `left`, the remaining bits of the part's mixed hashes.
    pub(super) fn fill(&mut self, left: impl Iterator<Item = u64>, blocks: u64, seed: u8) {
        self.slots.clear();
        self.slots.resize((blocks * BLOCK) as usize, 0);
        self.redundant = 0;
        for left in left {
            let Row { mut start, mut bits } = Row::of(left, blocks, seed);
            loop {
                let slot = &mut self.slots[start];
                if *slot == 0 {
                    *slot = bits;
                    break;
                }
                bits ^= *slot;
                if bits == 0 {
                    self.redundant += 1;
                    break;
                }
                let skipped = bits.trailing_zeros();
                start += skipped as usize;
                bits >>= skipped;
            }
        }
    }

    /// Number of rows that are sums of other rows. A key that was added twice makes such a row.
    pub(super) fn redundant(&self) -> usize {
        self.redundant
    }

    pub(super) fn slots(&self) -> &[u64] {
        &self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_rows_are_redundant() {
        let mut band = Banding::default();
        let left: Vec<u64> = (0..200u64).map(|at| at << 50).collect();
        band.fill([left.as_slice(), left.as_slice()].concat().into_iter(), 6, 3);
        assert_eq!(band.redundant(), 200);
        assert_eq!(band.slots().iter().filter(|bits| **bits != 0).count(), 200);
        band.fill(left.into_iter(), 6, 4);
        assert_eq!(band.redundant(), 0);
    }
}
