//! [`FragmentedTombstones`]: range tombstones cut into stretches that do not overlap, so that one
//! binary search finds those that cover a key.

use crate::{RangeTombstone, SequenceNumber};

/// A stretch of keys over which the same tombstones hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TombstoneFragment {
    /// First key of the stretch.
    pub start: Vec<u8>,
    /// First key after it.
    pub end: Vec<u8>,
    /// The tombstones over it, newest first. INVARIANT: not empty.
    pub sequences: Vec<SequenceNumber>,
}

/// Range tombstones cut into stretches that do not overlap.
///
/// INVARIANT: fragments are sorted, and each ends at or before the next one's start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FragmentedTombstones {
    fragments: Vec<TombstoneFragment>,
}

impl FragmentedTombstones {
    /// Cuts `tombstones`, which may overlap and come in any order. Empty ranges are dropped.
    pub fn new<'a>(tombstones: impl IntoIterator<Item = &'a RangeTombstone>) -> Self {
        let mut tombstones: Vec<&RangeTombstone> =
            tombstones.into_iter().filter(|t| t.start < t.end).collect();
        tombstones.sort_by(|a, b| a.start.cmp(&b.start));
        let mut bounds: Vec<&[u8]> =
            tombstones.iter().flat_map(|t| [t.start.as_slice(), t.end.as_slice()]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut fragments = Vec::new();
        let mut open: Vec<&RangeTombstone> = Vec::new();
        let mut upcoming = tombstones.into_iter().peekable();
        for pair in bounds.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            open.retain(|t| t.end.as_slice() > start);
            while let Some(tombstone) = upcoming.next_if(|t| t.start.as_slice() <= start) {
                open.push(tombstone);
            }
            if open.is_empty() {
                continue;
            }
            let mut sequences: Vec<_> = open.iter().map(|t| t.sequence).collect();
            sequences.sort_unstable_by(|a, b| b.cmp(a));
            sequences.dedup();
            fragments.push(TombstoneFragment {
                start: start.to_vec(),
                end: end.to_vec(),
                sequences,
            });
        }
        FragmentedTombstones { fragments }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The stretches, in key order.
    pub fn fragments(&self) -> &[TombstoneFragment] {
        &self.fragments
    }

    /// The stretch that holds `key`.
    pub fn find(&self, key: &[u8]) -> Option<&TombstoneFragment> {
        let after = self.fragments.partition_point(|f| f.start.as_slice() <= key);
        let fragment = self.fragments.get(after.checked_sub(1)?)?;
        (key < fragment.end.as_slice()).then_some(fragment)
    }

    /// The newest tombstone over `key` that a reader at `sequence` sees.
    #[inline]
    pub fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        if self.fragments.is_empty() {
            return None;
        }
        self.find(key)?.newest_at(sequence)
    }

    /// Newest range tombstones of each key range that a reader at `sequence` sees.
    pub fn visible_at(&self, sequence: SequenceNumber) -> Vec<RangeTombstone> {
        let seen = |f: &TombstoneFragment| {
            let (start, end) = (f.start.clone(), f.end.clone());
            f.newest_at(sequence).map(|sequence| RangeTombstone { start, end, sequence })
        };
        self.fragments.iter().filter_map(seen).collect()
    }

    /// The tombstones again, one per stretch and sequence number, in key order, newest first.
    pub fn to_tombstones(&self) -> Vec<RangeTombstone> {
        let each = |f: &TombstoneFragment| {
            let (start, end) = (f.start.clone(), f.end.clone());
            f.sequences.clone().into_iter().map(move |sequence| RangeTombstone {
                start: start.clone(),
                end: end.clone(),
                sequence,
            })
        };
        self.fragments.iter().flat_map(each).collect()
    }
}

impl TombstoneFragment {
    /// The newest tombstone of this stretch that a reader at `sequence` sees.
    #[inline]
    pub fn newest_at(&self, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let first = self.sequences.partition_point(|&s| s > sequence);
        self.sequences.get(first).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tombstone(start: u8, end: u8, sequence: u64) -> RangeTombstone {
        RangeTombstone { start: vec![start], end: vec![end], sequence }
    }

    #[test]
    fn overlapping_ranges_are_cut_where_they_meet() {
        let cut = FragmentedTombstones::new(&[tombstone(1, 5, 10), tombstone(3, 8, 20)]);
        let shape: Vec<_> =
            cut.fragments().iter().map(|f| (f.start[0], f.end[0], f.sequences.clone())).collect();
        assert_eq!(shape, [(1, 3, vec![10]), (3, 5, vec![20, 10]), (5, 8, vec![20])]);
        assert_eq!(cut.covering(&[4], 15), Some(10));
        assert_eq!(cut.covering(&[8], 99), None);
    }

    proptest! {
        #[test]
        fn lookup_equals_a_linear_search(
            list in proptest::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..12),
        ) {
            let list: Vec<_> = list.into_iter().map(|(a, b, s)| tombstone(a, b, s)).collect();
            let cut = FragmentedTombstones::new(&list);
            prop_assert_eq!(&FragmentedTombstones::new(&cut.to_tombstones()), &cut);
            let seen = FragmentedTombstones::new(&cut.visible_at(15));
            for key in 0u8..21 {
                prop_assert_eq!(seen.covering(&[key], 15), cut.covering(&[key], 15));
            }
            for key in 0u8..21 {
                for at in 0..31 {
                    let naive = list
                        .iter()
                        .filter(|t| t.start[0] <= key && key < t.end[0] && t.sequence <= at)
                        .map(|t| t.sequence)
                        .max();
                    prop_assert_eq!(cut.covering(&[key], at), naive);
                }
            }
        }
    }
}
