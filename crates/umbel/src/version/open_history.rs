//! [`Openings`]: which open of the store gave which sequence numbers.
//!
//! Copies of a store that went on apart gave the same numbers to different writes. What is derived
//! of a store's writes and stands beside them, such as an existence filter, says up to which number
//! it has them, and which open gave that number. The id of an open is random and never given twice,
//! so a number and the id that goes with it belong to one history.
//!
//! INVARIANT: a number is of the last open that began before it was taken. An open that was given
//! none is forgotten with the next: nothing can speak of it.

use umbel_base::SequenceNumber;

/// How many are kept. What speaks of an earlier one is not believed any more, and made anew.
const KEPT: usize = 64;

/// An open by a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The numbers that were taken before it.
    pub after: SequenceNumber,
    /// What is said of those that came then; 0 where nothing is known of the open.
    pub id: u64,
}

/// The opens by writers, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Openings(Vec<Opening>);

impl Openings {
    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Opening> {
        self.0.iter().copied()
    }

    /// Notes an open as the manifest says.
    pub fn add(&mut self, opening: Opening) -> Result<(), String> {
        if self.0.last().is_some_and(|last| opening.after < last.after) {
            return Err(format!("an open after {} comes before an earlier one", opening.after));
        }
        self.0.retain(|earlier| earlier.after != opening.after);
        self.0.push(opening);
        let surplus = self.0.len().saturating_sub(KEPT);
        self.0.drain(..surplus);
        Ok(())
    }

    /// Notes the present open, which found these numbers taken. Where a filter is older than all
    /// that is known of opens it says so itself.
    pub fn begin(&mut self, last: SequenceNumber, id: u64) -> Result<(), String> {
        if self.is_empty() && last > 0 {
            self.add(Opening { after: 0, id: 0 })?;
        }
        self.add(Opening { after: last, id })
    }

    /// The id of the open that gave a number; `None` where it is not known any more.
    pub fn of(&self, sequence: SequenceNumber) -> Option<u64> {
        let behind = self.0.partition_point(|opening| opening.after < sequence);
        Some(self.0[behind.checked_sub(1)?].id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(u64, u64)]) -> Openings {
        let mut openings = Openings::default();
        for &(after, id) in pairs {
            openings.add(Opening { after, id }).unwrap();
        }
        openings
    }

    #[test]
    fn a_number_is_of_the_last_open_before_it() {
        let openings = of(&[(0, 5), (10, 6), (20, 7)]);
        let found = [0, 1, 10, 11, 20, 21, 1000].map(|number| openings.of(number));
        assert_eq!(found, [None, Some(5), Some(5), Some(6), Some(6), Some(7), Some(7)]);
    }

    #[test]
    fn an_open_that_gave_no_number_is_forgotten_and_none_comes_before_an_earlier_one() {
        let mut openings = of(&[(0, 5), (10, 6), (10, 7)]);
        assert_eq!(openings, of(&[(0, 5), (10, 7)]));
        assert!(openings.add(Opening { after: 9, id: 8 }).is_err());
        assert_eq!(openings.of(11), Some(7));
    }

    #[test]
    fn what_came_before_the_opens_that_are_kept_is_of_none() {
        let mut openings = Openings::default();
        openings.begin(0, 1).unwrap();
        assert_eq!(openings.of(3), Some(1));
        (1..=KEPT as u64).for_each(|open| openings.begin(open * 10, open + 1).unwrap());
        assert_eq!(
            (openings.iter().count(), openings.of(10), openings.of(11)),
            (64, None, Some(2))
        );
    }

    /// Of an earlier version: what was written then is of no open that is known.
    #[test]
    fn a_store_that_knew_of_no_opens_has_had_one() {
        let mut openings = Openings::default();
        openings.begin(10, 9).unwrap();
        assert_eq!([1, 10, 11].map(|number| openings.of(number)), [Some(0), Some(0), Some(9)]);
    }
}
