//! [`FragmentedTombstones`]: range tombstones cut where they overlap, for searches by key.
//!
//! The name is RocksDB's (`FragmentedRangeTombstoneList`). There each fragment lists the sequence
//! numbers of all tombstones over it, which squares with nested ranges. Here a segment tree over
//! the fragments holds them: each tombstone is in `O(log n)` nodes, and a fragment's tombstones are
//! those of its leaf and of the nodes above it.

use std::ops::Range;

use crate::compact_numbers::CompactNumbers;
use crate::{CommonPrefix, RangeTombstoneRef, SequenceNumber};

/// Range tombstones cut into fragments that do not overlap, so that one binary search answers.
///
/// `n` tombstones take `O(n log n)` time to cut and memory to hold, whichever way they overlap.
///
/// INVARIANT: fragments are sorted, and each ends at or before the next one's start. All lists of
/// fragments have the same length.
#[derive(Debug, Clone, Default)]
pub struct FragmentedTombstones {
    /// The distinct bounds of all tombstones in key order, one after the other.
    bound_bytes: Vec<u8>,
    /// For each bound its end in `bound_bytes`.
    bound_ends: CompactNumbers,
    /// What all bounds begin with.
    prefix: CommonPrefix,
    /// For each fragment the number of the bound where it starts; it ends at the next bound.
    starts: Vec<u32>,
    /// For each fragment the head of its first key.
    heads: Vec<u64>,
    /// For each fragment the sequence number of the newest tombstone over it.
    newest: CompactNumbers,
    /// The greatest of these.
    newest_of_all: SequenceNumber,
    overlaps: OverlapTree,
}

/// The tombstones over each fragment, as a segment tree of sequence numbers. It is empty where each
/// fragment has one tombstone.
///
/// Node 1 is the root, node `count + i` the leaf of fragment `i`, and `node / 2` the node above.
#[derive(Debug, Clone, Default)]
struct OverlapTree {
    /// For each node the end of its numbers in `sequences`, which begin where the node before ends.
    node_ends: CompactNumbers,
    /// The sequence numbers of each node, ascending.
    sequences: CompactNumbers,
}

/// A tombstone over a range of fragments, or of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cover {
    sequence: SequenceNumber,
    first: u32,
    end: u32,
}

impl OverlapTree {
    /// A tree over `count` fragments. REQUIRES: `covers` is not empty, and sorted by sequence
    /// number.
    fn new(count: usize, covers: &[Cover]) -> OverlapTree {
        let mut lengths = vec![0_u32; 2 * count];
        for cover in covers {
            for_each_node(count, cover, |node| lengths[node] += 1);
        }
        let total = lengths.iter().map(|&length| u64::from(length)).sum();
        let mut node_ends = CompactNumbers::filled(2 * count, 0..=total);
        let mut end = 0;
        for (node, &length) in lengths.iter().enumerate() {
            end += u64::from(length);
            node_ends.set(node, end);
        }
        let range = covers[0].sequence..=covers[covers.len() - 1].sequence;
        let mut sequences = CompactNumbers::filled(total as usize, range);
        for cover in covers {
            for_each_node(count, cover, |node| {
                sequences
                    .set(node_ends.get(node) as usize - lengths[node] as usize, cover.sequence);
                lengths[node] -= 1;
            });
        }
        OverlapTree { node_ends, sequences }
    }

    fn is_empty(&self) -> bool {
        self.node_ends.len() == 0
    }

    /// The places in `sequences` of the nodes over a fragment, by node.
    fn over(&self, fragment: usize) -> impl Iterator<Item = Range<usize>> {
        let leaf = if self.is_empty() { 0 } else { self.node_ends.len() / 2 + fragment };
        let nodes = std::iter::successors(Some(leaf), |node| Some(node / 2));
        nodes.take_while(|&node| node > 0).map(|node| {
            let first = self.node_ends.get(node - 1) as usize;
            first..self.node_ends.get(node) as usize
        })
    }

    /// The newest tombstone over a fragment up to `sequence`.
    fn newest_at(&self, fragment: usize, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let seen = |node: Range<usize>| {
            let first = node.start;
            let end = self.sequences.partition_point(node, |tombstone| tombstone <= sequence);
            (end > first).then(|| self.sequences.get(end - 1))
        };
        self.over(fragment).filter_map(seen).max()
    }

    /// The oldest tombstone over a fragment after `sequence`.
    fn oldest_after(&self, fragment: usize, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let newer = |node: Range<usize>| {
            let end = node.end;
            let first = self.sequences.partition_point(node, |tombstone| tombstone <= sequence);
            (first < end).then(|| self.sequences.get(first))
        };
        self.over(fragment).filter_map(newer).min()
    }
}

/// Visits the nodes that together cover the fragments of `cover`, of `count` in all.
fn for_each_node(count: usize, cover: &Cover, mut visit: impl FnMut(usize)) {
    let (mut low, mut high) = (cover.first as usize + count, cover.end as usize + count);
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

/// The distinct bounds of tombstones, in key order.
fn distinct_bounds<'a>(
    tombstones: impl Iterator<Item = RangeTombstoneRef<'a>> + Clone,
) -> Vec<&'a [u8]> {
    let bounds = tombstones.flat_map(|tombstone| [tombstone.start, tombstone.end]);
    // Neighbours often meet.
    let unequal_to_last = || {
        let mut last = None;
        bounds.clone().filter(move |&bound| last.replace(bound) != Some(bound))
    };
    let mut distinct = Vec::with_capacity(unequal_to_last().count());
    distinct.extend(unequal_to_last());
    if !distinct.is_sorted() {
        distinct.sort_unstable();
    }
    distinct.dedup();
    distinct
}

/// Renumbers `covers` from bounds to fragments. Returns the bound where each fragment starts.
///
/// Stretches between bounds that no tombstone covers are no fragments.
fn number_fragments(bounds: usize, covers: &mut [Cover]) -> Vec<u32> {
    let mut opened = vec![0_i32; bounds];
    for cover in &*covers {
        opened[cover.first as usize] += 1;
        opened[cover.end as usize] -= 1;
    }
    let mut fragment_of = vec![0_u32; bounds];
    let mut starts = Vec::new();
    let mut depth = 0;
    for (bound, change) in opened.into_iter().enumerate() {
        fragment_of[bound] = starts.len() as u32;
        depth += change;
        if depth > 0 {
            starts.push(bound as u32);
        }
    }
    for cover in covers {
        cover.first = fragment_of[cover.first as usize];
        cover.end = fragment_of[cover.end as usize];
    }
    starts
}

impl FragmentedTombstones {
    /// Cuts `tombstones`, which may overlap and come in any order. Empty ranges are dropped.
    ///
    /// # Panics
    /// With 2³⁰ tombstones or more.
    pub fn new<'a, T: Into<RangeTombstoneRef<'a>>>(
        tombstones: impl IntoIterator<Item = T, IntoIter: Clone>,
    ) -> Self {
        let tombstones = tombstones.into_iter().map(Into::into);
        let tombstones = tombstones.filter(|t: &RangeTombstoneRef<'a>| t.start < t.end);
        let bounds = distinct_bounds(tombstones.clone());
        i32::try_from(bounds.len()).expect("fewer than 2^30 range tombstones");
        let number = |key: &[u8]| bounds.partition_point(|&bound| bound < key) as u32;
        let mut covers = Vec::with_capacity(tombstones.clone().count());
        covers.extend(tombstones.map(|t| Cover {
            sequence: t.sequence,
            first: number(t.start),
            end: number(t.end),
        }));
        let (Some(&first), Some(&last)) = (bounds.first(), bounds.last()) else {
            return FragmentedTombstones::default();
        };
        covers.sort_unstable();
        let starts = number_fragments(bounds.len(), &mut covers);
        let prefix = CommonPrefix::of([first, last].into_iter());
        let heads = starts.iter().map(|&start| prefix.head(bounds[start as usize])).collect();
        let bound_bytes = bounds.concat();
        let mut bound_ends = CompactNumbers::filled(bounds.len(), 0..=bound_bytes.len() as u64);
        let mut end = 0;
        for (number, bound) in bounds.into_iter().enumerate() {
            end += bound.len() as u64;
            bound_ends.set(number, end);
        }
        let (newest, overlaps) = newest_and_overlaps(starts.len(), &covers);
        let newest_of_all = covers[covers.len() - 1].sequence;
        FragmentedTombstones {
            bound_bytes,
            bound_ends,
            prefix,
            starts,
            heads,
            newest,
            newest_of_all,
            overlaps,
        }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Number of fragments. They are numbered in key order.
    #[inline]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Sequence number of the newest tombstone; 0 without one.
    #[inline]
    pub fn newest(&self) -> SequenceNumber {
        self.newest_of_all
    }

    /// Memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bound_bytes.len()
            + self.bound_ends.memory_bytes()
            + self.prefix.memory_bytes()
            + size_of_val(&*self.starts)
            + size_of_val(&*self.heads)
            + self.newest.memory_bytes()
            + self.overlaps.node_ends.memory_bytes()
            + self.overlaps.sequences.memory_bytes()
    }

    #[inline]
    fn bound(&self, number: usize) -> &[u8] {
        let first = number.checked_sub(1).map_or(0, |before| self.bound_ends.get(before));
        &self.bound_bytes[first as usize..self.bound_ends.get(number) as usize]
    }

    /// First key of a fragment.
    #[inline]
    pub fn start(&self, fragment: usize) -> &[u8] {
        self.bound(self.starts[fragment] as usize)
    }

    /// First key after a fragment.
    #[inline]
    pub fn end(&self, fragment: usize) -> &[u8] {
        self.bound(self.starts[fragment] as usize + 1)
    }

    /// Number of fragments that start at or before `key`.
    #[inline]
    pub fn started_at(&self, key: &[u8]) -> usize {
        let head = self.prefix.head(key);
        let before = self.heads.partition_point(|&start| start < head);
        match self.heads.get(before) {
            Some(&start) if start == head => before + self.resolve_ties(before, key, head),
            _ => before,
        }
    }

    /// Number of fragments from `first` on that start with this head and at or before `key`: only
    /// whole keys decide.
    fn resolve_ties(&self, first: usize, key: &[u8], head: u64) -> usize {
        let ties = self.heads[first..].partition_point(|&start| start == head);
        let starts = &self.starts[first..first + ties];
        starts.partition_point(|&start| self.bound(start as usize) <= key)
    }

    /// Sequence number of the newest tombstone over a fragment that a reader at `sequence` sees.
    #[inline]
    pub fn newest_at(&self, fragment: usize, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let newest = self.newest.get(fragment);
        if newest <= sequence {
            return Some(newest);
        }
        self.overlaps.newest_at(fragment, sequence)
    }

    /// Sequence number of the oldest tombstone over a fragment that is newer than `sequence`.
    #[inline]
    pub fn oldest_after(
        &self,
        fragment: usize,
        sequence: SequenceNumber,
    ) -> Option<SequenceNumber> {
        let newest = self.newest.get(fragment);
        if newest <= sequence {
            return None;
        }
        if self.overlaps.is_empty() {
            return Some(newest);
        }
        self.overlaps.oldest_after(fragment, sequence)
    }

    /// The newest tombstone over `key` that a reader at `sequence` sees.
    #[inline]
    pub fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        let fragment = self.started_at(key).checked_sub(1)?;
        if key < self.end(fragment) { self.newest_at(fragment, sequence) } else { None }
    }
}

/// For each fragment the newest tombstone over it, and all of them. REQUIRES: `covers` is not
/// empty, and sorted by sequence number.
fn newest_and_overlaps(count: usize, covers: &[Cover]) -> (CompactNumbers, OverlapTree) {
    let range = covers[0].sequence..=covers[covers.len() - 1].sequence;
    let mut newest = CompactNumbers::filled(count, range);
    // Each fragment has a tombstone, so none has two exactly where they are as many.
    if covers.iter().map(|cover| (cover.end - cover.first) as usize).sum::<usize>() == count {
        for cover in covers {
            (cover.first..cover.end).for_each(|fragment| {
                newest.set(fragment as usize, cover.sequence);
            });
        }
        return (newest, OverlapTree::default());
    }
    let overlaps = OverlapTree::new(count, covers);
    for fragment in 0..count {
        let newest_over = overlaps.newest_at(fragment, SequenceNumber::MAX);
        newest.set(fragment, newest_over.expect("each fragment has a tombstone"));
    }
    (newest, overlaps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RangeTombstone;
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
    fn disjoint_ranges_take_little_beside_their_keys() {
        let list: Vec<_> = (0..1_000_u32)
            .map(|i| RangeTombstone {
                start: format!("key-{:08}", 2 * i).into_bytes(),
                end: format!("key-{:08}", 2 * i + 1).into_bytes(),
                sequence: u64::from(i) + (1 << 40),
            })
            .collect();
        let cut = FragmentedTombstones::new(&list);
        assert_eq!((cut.len(), cut.newest()), (1_000, (1 << 40) + 999));
        // Both keys with their ends, and for a fragment its start, its head and its number.
        assert_eq!(cut.memory_bytes(), "key-0000".len() + 1_000 * (2 * (12 + 4) + 4 + 8 + 4));
        assert_eq!(cut.covering(b"key-00000500", u64::MAX), Some(250 + (1 << 40)));
        assert_eq!(cut.covering(b"key-00000500", 249 + (1 << 40)), None);
        assert_eq!(cut.oldest_after(250, 249 + (1 << 40)), Some(250 + (1 << 40)));
        for outside in [&b"key-00000501"[..], b"key-0000", b"a", b"z"] {
            assert_eq!(cut.covering(outside, u64::MAX), None);
        }
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
        fn keys_with_equal_heads_are_found_by_whole_keys(
            list in proptest::collection::vec((0usize..12, 0usize..12, 1u64..30), 1..12),
            wide in any::<bool>(),
        ) {
            let keys: [&[u8]; 12] = [
                b"", b"a", b"k", b"key", b"key\0", b"key\0\0\0\0\0\0\0\0", b"key-1234567", b"key-12345678",
                b"key-123456789", b"key-12345678a", b"l", b"\xff",
            ];
            let list: Vec<_> = list.into_iter().map(|(start, end, sequence)| RangeTombstone {
                start: keys[start].to_vec(),
                end: keys[end].to_vec(),
                sequence: sequence << if wide { 40 } else { 0 },
            }).collect();
            let cut = FragmentedTombstones::new(&list);
            for key in keys {
                let over = list.iter().filter(|t| t.start.as_slice() <= key && key < &*t.end);
                prop_assert_eq!(cut.covering(key, u64::MAX), over.map(|t| t.sequence).max());
                let started = (0..cut.len()).filter(|&fragment| cut.start(fragment) <= key).count();
                prop_assert_eq!(cut.started_at(key), started);
            }
        }

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
