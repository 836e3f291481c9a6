//! [`FragmentedTombstones`]: range tombstones cut where they overlap, for searches by key.
//!
//! The name is RocksDB's (`FragmentedRangeTombstoneList`). There each fragment lists the sequence
//! numbers of all tombstones over it, which squares with nested ranges. Here a segment tree over
//! the fragments holds them: each tombstone is in `O(log n)` nodes, and a fragment's tombstones are
//! those of its leaf and of the nodes above it.

use crate::{RangeTombstone, SequenceNumber};

/// A stretch of keys over which the same tombstones hold.
#[derive(Debug, Clone, Copy)]
struct Fragment {
    /// Number of the bound where it starts; it ends at the next bound.
    start: u32,
    /// Sequence number of the newest tombstone over it.
    newest: SequenceNumber,
}

/// Range tombstones cut into fragments that do not overlap, so that one binary search answers.
///
/// `n` tombstones take `O(n log n)` time to cut and memory to hold, whichever way they overlap.
///
/// INVARIANT: fragments are sorted, and each ends at or before the next one's start.
#[derive(Debug, Clone, Default)]
pub struct FragmentedTombstones {
    /// The distinct bounds of all tombstones in key order, one after the other.
    bound_bytes: Vec<u8>,
    /// For each bound its end in `bound_bytes`.
    bound_ends: Vec<usize>,
    fragments: Vec<Fragment>,
    overlaps: OverlapTree,
}

/// The tombstones over each fragment, as a segment tree of sequence numbers.
///
/// Node 1 is the root, node `count + i` the leaf of fragment `i`, and `node / 2` the node above.
#[derive(Debug, Clone, Default)]
struct OverlapTree {
    /// For each node the end of its numbers in `sequences`, which begin where the node before ends.
    node_ends: Vec<usize>,
    /// The sequence numbers of each node, ascending.
    sequences: Vec<SequenceNumber>,
}

impl OverlapTree {
    /// A tree over `count` fragments, of tombstones over ranges of fragments. REQUIRES: `covers` is
    /// sorted by sequence number.
    fn new(count: usize, covers: &[(SequenceNumber, usize, usize)]) -> OverlapTree {
        let mut node_ends = vec![0; 2 * count];
        for &(_, first, end) in covers {
            for_each_node(count, first, end, |node| node_ends[node] += 1);
        }
        let mut total = 0;
        for node_end in &mut node_ends {
            // For now the beginning: it moves to the end while the node fills.
            total += std::mem::replace(node_end, total);
        }
        let mut sequences = vec![0; total];
        for &(sequence, first, end) in covers {
            for_each_node(count, first, end, |node| {
                sequences[node_ends[node]] = sequence;
                node_ends[node] += 1;
            });
        }
        OverlapTree { node_ends, sequences }
    }

    /// The sequence numbers of the nodes over a fragment, by node.
    fn over(&self, fragment: usize) -> impl Iterator<Item = &[SequenceNumber]> {
        let leaf = self.node_ends.len() / 2 + fragment;
        let nodes = std::iter::successors(Some(leaf), |node| Some(node / 2));
        nodes.take_while(|&node| node > 0).map(|node| {
            let first = self.node_ends[node - 1];
            &self.sequences[first..self.node_ends[node]]
        })
    }
}

/// Visits the nodes that together cover the fragments `first..end` of `count`.
fn for_each_node(count: usize, first: usize, end: usize, mut visit: impl FnMut(usize)) {
    let (mut low, mut high) = (first + count, end + count);
    while low < high {
        if low % 2 == 1 {
            visit(low);
            low += 1;
        }
        if high % 2 == 1 {
            high -= 1;
            visit(high);
        }
        low /= 2;
        high /= 2;
    }
}

impl FragmentedTombstones {
    /// Cuts `tombstones`, which may overlap and come in any order. Empty ranges are dropped.
    ///
    /// # Panics
    /// With 2³¹ tombstones or more.
    pub fn new<'a>(tombstones: impl IntoIterator<Item = &'a RangeTombstone>) -> Self {
        let mut tombstones: Vec<&RangeTombstone> =
            tombstones.into_iter().filter(|t| t.start < t.end).collect();
        if tombstones.is_empty() {
            return FragmentedTombstones::default();
        }
        tombstones.sort_unstable_by_key(|t| t.sequence);
        let mut bounds: Vec<&[u8]> =
            tombstones.iter().flat_map(|t| [t.start.as_slice(), t.end.as_slice()]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        u32::try_from(bounds.len()).expect("fewer than 2^31 range tombstones");
        let number = |key: &[u8]| bounds.partition_point(|&bound| bound < key);
        let mut covers: Vec<(SequenceNumber, usize, usize)> =
            tombstones.iter().map(|t| (t.sequence, number(&t.start), number(&t.end))).collect();
        // Stretches between bounds that no tombstone covers are no fragments.
        let mut fragment_of = vec![0; bounds.len()];
        let mut starts = Vec::new();
        let mut open = vec![0_i64; bounds.len()];
        for &(_, start, end) in &covers {
            open[start] += 1;
            open[end] -= 1;
        }
        let mut depth = 0;
        for (bound, change) in open.into_iter().enumerate() {
            fragment_of[bound] = starts.len();
            depth += change;
            if depth > 0 {
                starts.push(bound as u32);
            }
        }
        for (_, start, end) in &mut covers {
            (*start, *end) = (fragment_of[*start], fragment_of[*end]);
        }
        let overlaps = OverlapTree::new(starts.len(), &covers);
        let newest = |fragment| overlaps.over(fragment).filter_map(|s| s.last()).max().copied();
        let fragments = starts
            .into_iter()
            .enumerate()
            .map(|(fragment, start)| Fragment { start, newest: newest(fragment).unwrap_or(0) });
        let fragments = fragments.collect();
        let mut bound_bytes = Vec::with_capacity(bounds.iter().map(|bound| bound.len()).sum());
        let ends = bounds.into_iter().map(|bound| {
            bound_bytes.extend_from_slice(bound);
            bound_bytes.len()
        });
        let bound_ends = ends.collect();
        FragmentedTombstones { bound_bytes, bound_ends, fragments, overlaps }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Number of fragments. They are numbered in key order.
    pub fn len(&self) -> usize {
        self.fragments.len()
    }

    /// Memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bound_bytes.len()
            + size_of_val(&*self.bound_ends)
            + size_of_val(&*self.fragments)
            + size_of_val(&*self.overlaps.node_ends)
            + size_of_val(&*self.overlaps.sequences)
    }

    fn bound(&self, number: usize) -> &[u8] {
        let first = number.checked_sub(1).map_or(0, |before| self.bound_ends[before]);
        &self.bound_bytes[first..self.bound_ends[number]]
    }

    /// First key of a fragment.
    #[inline]
    pub fn start(&self, fragment: usize) -> &[u8] {
        self.bound(self.fragments[fragment].start as usize)
    }

    /// First key after a fragment.
    #[inline]
    pub fn end(&self, fragment: usize) -> &[u8] {
        self.bound(self.fragments[fragment].start as usize + 1)
    }

    /// Number of fragments that start at or before `key`.
    pub fn started_at(&self, key: &[u8]) -> usize {
        self.fragments.partition_point(|fragment| self.bound(fragment.start as usize) <= key)
    }

    /// Sequence number of the newest tombstone over a fragment that a reader at `sequence` sees.
    #[inline]
    pub fn newest_at(&self, fragment: usize, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let newest = self.fragments[fragment].newest;
        if newest <= sequence {
            return Some(newest);
        }
        let seen = |node: &[SequenceNumber]| {
            let count = node.partition_point(|&tombstone| tombstone <= sequence);
            count.checked_sub(1).map(|last| node[last])
        };
        self.overlaps.over(fragment).filter_map(seen).max()
    }

    /// Sequence number of the oldest tombstone over a fragment that is newer than `sequence`.
    #[inline]
    pub fn oldest_after(
        &self,
        fragment: usize,
        sequence: SequenceNumber,
    ) -> Option<SequenceNumber> {
        if self.fragments[fragment].newest <= sequence {
            return None;
        }
        let newer = |node: &[SequenceNumber]| {
            node.get(node.partition_point(|&tombstone| tombstone <= sequence)).copied()
        };
        self.overlaps.over(fragment).filter_map(newer).min()
    }

    /// The newest tombstone over `key` that a reader at `sequence` sees.
    #[inline]
    pub fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        if self.fragments.is_empty() {
            return None;
        }
        let fragment = self.started_at(key).checked_sub(1)?;
        if key < self.end(fragment) { self.newest_at(fragment, sequence) } else { None }
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
        let cut = FragmentedTombstones::new(&[
            tombstone(1, 5, 10),
            tombstone(3, 8, 20),
            tombstone(9, 12, 5),
            tombstone(12, 12, 6),
        ]);
        let shape: Vec<_> = (0..cut.len())
            .map(|f| (cut.start(f)[0], cut.end(f)[0], cut.newest_at(f, 15), cut.newest_at(f, 99)))
            .collect();
        let expected = [
            (1, 3, Some(10), Some(10)),
            (3, 5, Some(10), Some(20)),
            (5, 8, None, Some(20)),
            (9, 12, Some(5), Some(5)),
        ];
        assert_eq!(shape, expected);
        assert_eq!(cut.covering(&[4], 15), Some(10));
        assert_eq!((cut.covering(&[0], 99), cut.covering(&[8], 99)), (None, None));
        assert_eq!((cut.oldest_after(1, 10), cut.oldest_after(1, 9)), (Some(20), Some(10)));
    }

    #[test]
    fn nested_ranges_take_memory_in_proportion_to_their_number() {
        let nested = |count: u32| -> FragmentedTombstones {
            let list: Vec<_> = (0..count)
                .map(|i| RangeTombstone {
                    start: i.to_be_bytes().to_vec(),
                    end: (u32::MAX - i).to_be_bytes().to_vec(),
                    sequence: u64::from(i) + 1,
                })
                .collect();
            FragmentedTombstones::new(&list)
        };
        let (few, many) = (nested(1_000), nested(100_000));
        assert_eq!((few.len(), many.len()), (1_999, 199_999));
        // A hundred times as many, with a logarithm that is not twice as large.
        assert!(many.memory_bytes() < 200 * few.memory_bytes());
        assert_eq!(many.covering(&70_000_u32.to_be_bytes(), u64::MAX), Some(70_001));
        assert_eq!(many.covering(&70_000_u32.to_be_bytes(), 12), Some(12));
    }

    proptest! {
        #[test]
        fn lookup_equals_a_linear_search(
            list in proptest::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..12),
        ) {
            let list: Vec<_> = list.into_iter().map(|(a, b, s)| tombstone(a, b, s)).collect();
            let cut = FragmentedTombstones::new(&list);
            for key in 0u8..21 {
                let over = list.iter().filter(|t| t.start[0] <= key && key < t.end[0]);
                let over: Vec<u64> = over.map(|t| t.sequence).collect();
                let fragment = cut.started_at(&[key]).checked_sub(1);
                let fragment = fragment.filter(|&f| [key].as_slice() < cut.end(f));
                prop_assert_eq!(fragment.is_none(), over.is_empty());
                for at in 0..31 {
                    let naive = over.iter().copied().filter(|&s| s <= at).max();
                    prop_assert_eq!(cut.covering(&[key], at), naive);
                    let newer = over.iter().copied().filter(|&s| s > at).min();
                    prop_assert_eq!(fragment.and_then(|f| cut.oldest_after(f, at)), newer);
                }
            }
        }
    }
}
