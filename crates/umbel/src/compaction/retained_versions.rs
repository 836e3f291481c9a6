//! [`RetainedVersions`]: counts the older versions in a new table by the snapshots that need them.

use std::collections::BTreeMap;

use umbel_base::SequenceNumber;

/// Maximum number of snapshot ranges that are counted separately. Versions of further ranges are
/// not counted; they are dropped only after the oldest reader ends.
const RANGES_MAX: usize = 256;

/// Counts older versions by the range of snapshots that see them.
#[derive(Debug)]
pub struct RetainedVersions<'a> {
    /// Sequence numbers of the snapshots, ascending.
    snapshots: &'a [SequenceNumber],
    /// Sequence number of the previously emitted version.
    newer: SequenceNumber,
    /// For each range of snapshots, by its ends, the number of versions that exactly these
    /// snapshots see.
    counts: BTreeMap<(SequenceNumber, SequenceNumber), u64>,
}

impl<'a> RetainedVersions<'a> {
    /// Creates empty counts. `snapshots` are the sequence numbers of the snapshots, ascending.
    pub fn new(held: &'a [SequenceNumber]) -> RetainedVersions<'a> {
        RetainedVersions { snapshots: held, newer: 0, counts: BTreeMap::new() }
    }

    /// Counts the next version that is written. `repeats` says whether the previously written
    /// version has the same key.
    #[inline]
    pub fn note(&mut self, sequence: SequenceNumber, repeats: bool) {
        let newer = std::mem::replace(&mut self.newer, sequence);
        if repeats {
            self.count(sequence, newer);
        }
    }

    fn count(&mut self, sequence: SequenceNumber, newer: SequenceNumber) {
        let first = self.snapshots.partition_point(|&state| state < sequence);
        let end = self.snapshots.partition_point(|&state| state < newer);
        let seen_by = self.snapshots.get(first..end).unwrap_or_default();
        let (Some(&first), Some(&last)) = (seen_by.first(), seen_by.last()) else { return };
        let states = (first, last);
        if self.counts.len() < RANGES_MAX || self.counts.contains_key(&states) {
            *self.counts.entry(states).or_default() += 1;
        }
    }

    /// Returns the ranges of snapshots with more than `few` counted versions, and resets the
    /// counts.
    pub fn take_ranges(&mut self, few: u64) -> Vec<(SequenceNumber, SequenceNumber)> {
        let counts = std::mem::take(&mut self.counts);
        counts.into_iter().filter(|(_, count)| *count > few).map(|(states, _)| states).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retained_versions_are_counted_per_reader() {
        let mut older = RetainedVersions::new(&[3, 6, 9]);
        let note = |older: &mut RetainedVersions<'_>, versions: &[u64]| {
            for (index, version) in versions.iter().enumerate() {
                older.note(*version, index > 0);
            }
        };
        // The last one is seen by all and has no number any more.
        note(&mut older, &[12, 7, 5, 0]);
        // A version that snapshots 6 and 9 see, and one without a snapshot between.
        note(&mut older, &[11, 4]);
        note(&mut older, &[2, 1]);
        note(&mut older, &[10, 5]);
        assert_eq!(older.take_ranges(1), [(6, 9)]);
        assert!(older.take_ranges(0).is_empty());
        note(&mut older, &[12, 7, 5, 0]);
        assert_eq!(older.take_ranges(0), [(3, 3), (6, 6), (9, 9)]);
    }
}
