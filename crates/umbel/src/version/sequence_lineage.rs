//! [`SequenceLineage`]: records which open of the store assigned which sequence numbers.
//!
//! Copies of a store that diverged have assigned the same sequence numbers to different writes.
//! Data derived from a store's writes, such as an existence filter, records the sequence number
//! that it covers and the open that assigned it. The id of an open is random and never reused, so a
//! sequence number with the id of its open identifies one write.
//!
//! INVARIANT: a sequence number belongs to the last open that began before it was assigned. An open
//! that assigned no number is dropped at the next open, since no data can refer to it.

use umbel_base::SequenceNumber;

/// Number of opens that the lineage keeps. Derived data that refers to an earlier open is rejected
/// and rebuilt.
const OPENS_KEPT: usize = 64;

/// An open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRecord {
    /// The last sequence number assigned before the open.
    pub after: SequenceNumber,
    /// Id of the open, which derived data records; 0 if the open is unknown.
    pub id: u64,
}

/// The opens for writing, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceLineage(Vec<OpenRecord>);

impl SequenceLineage {
    /// Whether the lineage has no open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all opens, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = OpenRecord> {
        self.0.iter().copied()
    }

    /// Adds an open that the manifest records.
    pub fn add(&mut self, opening: OpenRecord) -> Result<(), String> {
        if self.0.last().is_some_and(|last| opening.after < last.after) {
            return Err(format!(
                "the open after {} is recorded before an earlier \
                                one",
                opening.after
            ));
        }
        self.0.retain(|earlier| earlier.after != opening.after);
        self.0.push(opening);
        let surplus = self.0.len().saturating_sub(OPENS_KEPT);
        self.0.drain(..surplus);
        Ok(())
    }

    /// Records the present open, before which sequence numbers up to `last` were assigned.
    pub fn record_open(&mut self, last: SequenceNumber, id: u64) -> Result<(), String> {
        if self.is_empty() && last > 0 {
            self.add(OpenRecord { after: 0, id: 0 })?;
        }
        self.add(OpenRecord { after: last, id })
    }

    /// Returns the id of the open that assigned a sequence number; `None` if the open is not known
    /// any more.
    pub fn open_at(&self, sequence: SequenceNumber) -> Option<u64> {
        let opens_before = self.0.partition_point(|opening| opening.after < sequence);
        Some(self.0[opens_before.checked_sub(1)?].id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(u64, u64)]) -> SequenceLineage {
        let mut openings = SequenceLineage::default();
        for &(after, id) in pairs {
            openings.add(OpenRecord { after, id }).unwrap();
        }
        openings
    }

    #[test]
    fn number_belongs_to_the_last_open_before_it() {
        let openings = of(&[(0, 5), (10, 6), (20, 7)]);
        let found = [0, 1, 10, 11, 20, 21, 1000].map(|number| openings.open_at(number));
        assert_eq!(found, [None, Some(5), Some(5), Some(6), Some(6), Some(7), Some(7)]);
    }

    #[test]
    fn opens_without_numbers_are_dropped_and_opens_stay_ordered() {
        let mut openings = of(&[(0, 5), (10, 6), (10, 7)]);
        assert_eq!(openings, of(&[(0, 5), (10, 7)]));
        assert!(openings.add(OpenRecord { after: 9, id: 8 }).is_err());
        assert_eq!(openings.open_at(11), Some(7));
    }

    #[test]
    fn numbers_before_kept_opens_belong_to_no_open() {
        let mut openings = SequenceLineage::default();
        openings.record_open(0, 1).unwrap();
        assert_eq!(openings.open_at(3), Some(1));
        (1..=OPENS_KEPT as u64).for_each(|open| openings.record_open(open * 10, open + 1).unwrap());
        assert_eq!(
            (openings.iter().count(), openings.open_at(10), openings.open_at(11)),
            (64, None, Some(2))
        );
    }

    /// The writes of a store of an earlier version belong to no known open.
    #[test]
    fn store_without_history_starts_with_one_open() {
        let mut openings = SequenceLineage::default();
        openings.record_open(10, 9).unwrap();
        assert_eq!([1, 10, 11].map(|number| openings.open_at(number)), [Some(0), Some(0), Some(9)]);
    }
}
