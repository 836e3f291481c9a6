//! How crowded the rows of a part are where they are most crowded, before they are added to a band.
//!
//! Walk over the slots with a queue: every row that begins joins it, every slot serves one. If the
//! queue has as many rows as a row has bits, then from where it was last empty up to as far as
//! these rows go there are at least as many rows as slots: together they determine every slot
//! there, and any row in that stretch is a sum of them and passes, however many columns there are.
//! A queue shorter by `d` leaves a chance of about 2^-d for that.

use super::place::Row;
use super::shape::BLOCK;

/// How many rows begin in each slot.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    starting: Vec<u16>,
}

impl Crowd {
    /// The longest queue of the rows in `left`, what is left of the mixed hashes of a part.
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
    fn the_queue_is_as_long_as_rows_are_many() {
        let mut crowd = Crowd::default();
        assert_eq!(crowd.longest(std::iter::empty(), 2, 0), 0);
        assert_eq!(crowd.longest(std::iter::repeat_n(9, 100), 5, 0), 100);
        let left = (0..1_000u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let loose = crowd.longest(left.clone(), 33, 1);
        let tight = crowd.longest(left.clone(), 17, 1);
        let over = crowd.longest(left, 9, 1);
        assert!(loose < tight && tight < 100 && over > 400, "{loose}, {tight}, {over}");
    }
}
