//! Estimates how crowded the rows of a part are at the densest place, before they are added to a
//! band.
//!
//! A queue runs over the slots: at each slot, the rows that begin there join the queue, and one row
//! leaves it. Suppose the queue has as many rows as a row has bits. Since the queue was last empty,
//! there are then at least as many rows as slots. Together these rows determine every slot of that
//! stretch. Any row in that stretch is a sum of them and passes, with any number of columns. If the
//! queue is shorter by `d`, the chance for that is about 2^-d.

use crate::ribbon::column_layout::BLOCK;
use crate::ribbon::row_hash::Row;

/// Number of rows that begin in each slot.
#[derive(Debug, Default)]
pub(super) struct RowsPerSlot {
    starting: Vec<u16>,
}

impl RowsPerSlot {
    /// Returns the longest queue of the rows in `left`, the remaining bits of the part's mixed
    /// hashes.
    pub(super) fn longest(
        &mut self,
        left: impl Iterator<Item = u64>,
        blocks: u64,
        seed: u8,
    ) -> usize {
        self.starting.clear();
        self.starting.resize(((blocks - 1) * BLOCK) as usize, 0);
        for left in left {
            let starting = &mut self.starting[Row::of(left, blocks, seed).start];
            *starting = starting.saturating_add(1);
        }
        let (mut queue, mut longest) = (0usize, 0);
        for starting in &self.starting {
            queue += usize::from(*starting);
            longest = longest.max(queue);
            queue = queue.saturating_sub(1);
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_length_follows_the_rows() {
        let mut crowd = RowsPerSlot::default();
        assert_eq!(crowd.longest(std::iter::empty(), 2, 0), 0);
        assert_eq!(crowd.longest(std::iter::repeat_n(9, 100), 5, 0), 100);
        let left = (0..1_000u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let loose = crowd.longest(left.clone(), 33, 1);
        let tight = crowd.longest(left.clone(), 17, 1);
        let over = crowd.longest(left, 9, 1);
        assert!(loose < tight && tight < 100 && over > 400, "{loose}, {tight}, {over}");
    }
}
