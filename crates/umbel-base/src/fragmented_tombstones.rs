//! [`FragmentedTombstones`]: range tombstones cut where they overlap, for searches by key.
//!
//! The name is RocksDB's (`FragmentedRangeTombstoneList`). In RocksDB each fragment lists the
//! sequence numbers of all tombstones over it, which takes quadratic memory for nested ranges. This
//! module has the sequence numbers in a segment tree over the fragments. Each tombstone is in
//! `O(log n)` nodes, and a fragment's tombstones are those of its leaf and of the nodes above the
//! leaf.

use std::ops::Range;

use crate::frame_of_reference::FrameOfReferenceList;
use crate::{CommonPrefix, RangeTombstoneRef, SequenceNumber};

/// Range tombstones cut at their bounds, so that one binary search finds the tombstones over a key.
///
/// Fragment `i` is the stretch of keys from bound `i` to the next bound. A fragment without a
/// tombstone over it is a gap.
///
/// `n` tombstones take `O(n log n)` time to cut and `O(n log n)` memory, even if they are nested.
#[derive(Debug, Clone, Default)]
pub struct FragmentedTombstones {
    /// The distinct bounds of all tombstones in key order, one after the other.
    bound_bytes: Vec<u8>,
    /// For each bound its end in `bound_bytes`.
    bound_ends: FrameOfReferenceList,
    heads: BoundHeads,
    /// For each fragment the sequence number of the newest tombstone over it, or `gap`.
    newest: FrameOfReferenceList,
    /// A number below those of all tombstones.
    gap: SequenceNumber,
    overlaps: OverlapTree,
}

/// Every head of this number of bounds is sampled. The heads between two samples fill four cache
/// lines, which a search loads at the same time.
const SAMPLE_INTERVAL: usize = 32;

/// The heads of the bounds, which decide most comparisons.
#[derive(Debug, Clone, Default)]
struct BoundHeads {
    /// The common prefix of all bounds.
    prefix: CommonPrefix,
    heads: Vec<u64>,
    /// Each head whose number is a multiple of [`SAMPLE_INTERVAL`]. These few heads stay in the CPU
    /// cache even if not all heads fit.
    samples: Vec<u64>,
}

impl BoundHeads {
    /// Computes the heads of `bounds`. REQUIRES: `bounds` are sorted.
    fn new(bounds: &[&[u8]]) -> BoundHeads {
        let ends = bounds.first().into_iter().chain(bounds.last());
        let prefix = CommonPrefix::of(ends.copied());
        let heads: Vec<u64> = bounds.iter().map(|bound| prefix.head(bound)).collect();
        let samples = heads.iter().step_by(SAMPLE_INTERVAL).copied().collect();
        BoundHeads { prefix, heads, samples }
    }

    /// Returns the range of bounds, between two samples, in which the last bound before this head
    /// is.
    #[inline]
    fn near(&self, head: u64) -> Range<usize> {
        let sample = self.samples.partition_point(|&sample| sample < head);
        let first = sample.saturating_sub(1) * SAMPLE_INTERVAL;
        first..self.heads.len().min(sample * SAMPLE_INTERVAL)
    }

    /// Returns the range of bounds that have this head, among which only whole keys decide. Bounds
    /// before the range are before a key with this head, and bounds after the range are after it.
    /// REQUIRES: `near` is the result of [`BoundHeads::near`] for the head.
    #[inline]
    fn ties(&self, head: u64, near: Range<usize>) -> Range<usize> {
        // A binary search would wait for one cache line after the other.
        let (first, near) = (near.start, &self.heads[near]);
        let first = first + near.iter().map(|&bound| usize::from(bound < head)).sum::<usize>();
        match self.heads.get(first) {
            Some(&bound) if bound == head => {
                first..first + self.heads[first..].partition_point(|&bound| bound == head)
            }
            _ => first..first,
        }
    }

    fn memory_bytes(&self) -> usize {
        self.prefix.memory_bytes() + size_of_val(&*self.heads) + size_of_val(&*self.samples)
    }
}

/// The tombstones over each fragment, as a segment tree of sequence numbers. The tree is empty if
/// no fragment has two tombstones.
///
/// Node 1 is the root, node `count + i` is the leaf of fragment `i`, and `node / 2` is the parent
/// of `node`.
#[derive(Debug, Clone, Default)]
struct OverlapTree {
    /// For each node the end of its numbers in `sequences`, which begin where the node before ends.
    node_ends: FrameOfReferenceList,
    /// The sequence numbers of each node, ascending.
    sequences: FrameOfReferenceList,
}

/// A tombstone over a range of fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cover {
    sequence: SequenceNumber,
    first: u32,
    end: u32,
}

impl OverlapTree {
    /// Creates the tree over `count` fragments. REQUIRES: `covers` is not empty, and sorted by
    /// sequence number.
    fn new(count: usize, covers: &[Cover]) -> OverlapTree {
        let mut lengths = vec![0_u32; 2 * count];
        for cover in covers {
            for_each_node(count, cover, |node| lengths[node] += 1);
        }
        let total = lengths.iter().map(|&length| u64::from(length)).sum();
        let mut node_ends = FrameOfReferenceList::filled(2 * count, 0..=total);
        let mut end = 0;
        for (node, &length) in lengths.iter().enumerate() {
            end += u64::from(length);
            node_ends.set(node, end);
        }
        let range = covers[0].sequence..=covers[covers.len() - 1].sequence;
        let mut sequences = FrameOfReferenceList::filled(total as usize, range);
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

    /// Returns the ranges in `sequences` of the nodes over a fragment.
    fn over(&self, fragment: usize) -> impl Iterator<Item = Range<usize>> {
        let leaf = if self.is_empty() { 0 } else { self.node_ends.len() / 2 + fragment };
        let nodes = std::iter::successors(Some(leaf), |node| Some(node / 2));
        nodes.take_while(|&node| node > 0).map(|node| {
            let first = self.node_ends.get(node - 1) as usize;
            first..self.node_ends.get(node) as usize
        })
    }

    /// Returns the newest tombstone over a fragment that is not newer than `sequence`.
    fn newest_at(&self, fragment: usize, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let seen = |node: Range<usize>| {
            let first = node.start;
            let end = self.sequences.partition_point(node, |tombstone| tombstone <= sequence);
            (end > first).then(|| self.sequences.get(end - 1))
        };
        self.over(fragment).filter_map(seen).max()
    }

    /// Returns the oldest tombstone over a fragment that is newer than `sequence`.
    fn oldest_after(&self, fragment: usize, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let newer = |node: Range<usize>| {
            let end = node.end;
            let first = self.sequences.partition_point(node, |tombstone| tombstone <= sequence);
            (first < end).then(|| self.sequences.get(first))
        };
        self.over(fragment).filter_map(newer).min()
    }
}

/// Calls `visit` for the nodes that together cover the fragments of `cover`, in a tree over `count`
/// fragments.
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

/// Returns the distinct bounds of tombstones, in key order.
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

impl FragmentedTombstones {
    /// Cuts `tombstones`, which can overlap and come in any order. Tombstones that hide nothing are
    /// dropped: empty ranges, and those with sequence number 0.
    ///
    /// # Panics
    /// If there are 2³¹ tombstones or more.
    pub fn new<'a, T: Into<RangeTombstoneRef<'a>>>(
        tombstones: impl IntoIterator<Item = T, IntoIter: Clone>,
    ) -> Self {
        let tombstones = tombstones.into_iter().map(Into::into);
        let tombstones =
            tombstones.filter(|t: &RangeTombstoneRef<'a>| t.start < t.end && t.sequence > 0);
        let bounds = distinct_bounds(tombstones.clone());
        if bounds.is_empty() {
            return FragmentedTombstones::default();
        }
        u32::try_from(bounds.len()).expect("fewer than 2^31 range tombstones");
        let number = |key: &[u8]| bounds.partition_point(|&bound| bound < key) as u32;
        let mut covers = Vec::with_capacity(tombstones.clone().count());
        covers.extend(tombstones.map(|t| Cover {
            sequence: t.sequence,
            first: number(t.start),
            end: number(t.end),
        }));
        covers.sort_unstable();
        let heads = BoundHeads::new(&bounds);
        let bound_bytes = bounds.concat();
        let mut bound_ends =
            FrameOfReferenceList::filled(bounds.len(), 0..=bound_bytes.len() as u64);
        let (fragments, mut end) = (bounds.len() - 1, 0);
        for (number, bound) in bounds.into_iter().enumerate() {
            end += bound.len() as u64;
            bound_ends.set(number, end);
        }
        let gap = covers[0].sequence - 1;
        let (newest, overlaps) = newest_and_overlaps(fragments, &covers, gap);
        FragmentedTombstones { bound_bytes, bound_ends, heads, newest, gap, overlaps }
    }

    /// Whether there are no tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.newest.len() == 0
    }

    /// Number of fragments, gaps included. Fragments are numbered in key order.
    #[inline]
    pub fn len(&self) -> usize {
        self.newest.len()
    }

    /// Bytes of memory that the fragments take.
    pub fn memory_bytes(&self) -> usize {
        self.bound_bytes.len()
            + self.bound_ends.memory_bytes()
            + self.heads.memory_bytes()
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
        self.bound(fragment)
    }

    /// First key after a fragment.
    #[inline]
    pub fn end(&self, fragment: usize) -> &[u8] {
        self.bound(fragment + 1)
    }

    /// Whether no tombstone lies over a fragment.
    #[inline]
    pub fn is_gap(&self, fragment: usize) -> bool {
        self.newest.get(fragment) == self.gap
    }

    /// Number of bounds at or before `key`. `key` is in the fragment with this number minus one.
    /// Before the first bound, and from the last bound on, `key` is in no fragment.
    #[inline]
    pub fn bounds_through(&self, key: &[u8]) -> usize {
        let head = self.heads.prefix.head(key);
        let near = self.heads.near(head);
        // The number that is read next is often in this cache line, which loads meanwhile.
        if let Some(last) = near.end.min(self.newest.len()).checked_sub(1) {
            std::hint::black_box(self.newest.get(last));
        }
        let ties = self.heads.ties(head, near);
        if ties.is_empty() {
            return ties.start;
        }
        self.resolve_ties(ties, key)
    }

    fn resolve_ties(&self, ties: Range<usize>, key: &[u8]) -> usize {
        let (mut first, mut end) = (ties.start, ties.end);
        while first < end {
            let middle = first.midpoint(end);
            match self.bound(middle) <= key {
                true => first = middle + 1,
                false => end = middle,
            }
        }
        first
    }

    /// Returns the fragment over `key`, which is possibly a gap.
    #[inline]
    fn fragment_over(&self, key: &[u8]) -> Option<usize> {
        let fragment = self.bounds_through(key).checked_sub(1)?;
        (fragment < self.len()).then_some(fragment)
    }

    /// Sequence number of the newest tombstone over a fragment that a reader at `sequence` sees.
    #[inline]
    pub fn newest_at(&self, fragment: usize, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let newest = self.newest.get(fragment);
        if newest <= sequence {
            return (newest != self.gap).then_some(newest);
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
        if newest <= sequence || newest == self.gap {
            return None;
        }
        if self.overlaps.is_empty() {
            return Some(newest);
        }
        self.overlaps.oldest_after(fragment, sequence)
    }

    /// Returns the newest tombstone over `key` that a reader at `sequence` sees.
    #[inline]
    pub fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        self.newest_at(self.fragment_over(key)?, sequence)
    }
}

/// Returns, for each fragment, the newest tombstone over it or `gap`, and the tree of all
/// tombstones. REQUIRES: `covers` is not empty, and sorted by sequence number.
fn newest_and_overlaps(
    count: usize,
    covers: &[Cover],
    gap: SequenceNumber,
) -> (FrameOfReferenceList, OverlapTree) {
    let range = gap..=covers[covers.len() - 1].sequence;
    let mut newest = FrameOfReferenceList::filled(count, range);
    let covered = covers.iter().map(|cover| u64::from(cover.end - cover.first)).sum::<u64>();
    let mut have_overlaps = covered > count as u64;
    if !have_overlaps {
        for cover in covers {
            for fragment in cover.first as usize..cover.end as usize {
                have_overlaps |= newest.get(fragment) != gap;
                newest.set(fragment, cover.sequence);
            }
        }
    }
    if !have_overlaps {
        return (newest, OverlapTree::default());
    }
    let overlaps = OverlapTree::new(count, covers);
    for fragment in 0..count {
        newest.set(fragment, overlaps.newest_at(fragment, SequenceNumber::MAX).unwrap_or(gap));
    }
    (newest, overlaps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RangeTombstone;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
            .filter(|&f| !cut.is_gap(f))
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
        assert_eq!(cut.len(), 1_999);
        assert_eq!((0..cut.len()).filter(|&fragment| cut.is_gap(fragment)).count(), 999);
        // For a bound its key, its end, its head and its sample, and for a fragment a number.
        assert_eq!(cut.memory_bytes(), 8 + 2_000 * (12 + 4 + 8) + 63 * 8 + 1_999 * 4);
        assert_eq!(cut.covering(b"key-00000500", u64::MAX), Some(250 + (1 << 40)));
        assert_eq!(cut.covering(b"key-00000500", 249 + (1 << 40)), None);
        assert_eq!(cut.oldest_after(500, 249 + (1 << 40)), Some(250 + (1 << 40)));
        assert_eq!(cut.oldest_after(501, 0), None);
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
                b"", b"a", b"k", b"key", b"key\0", b"key\0\0\0\0\0\0\0\0", b"key-1234567",
                b"key-12345678", b"key-123456789", b"key-12345678a", b"l", b"\xff",
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
                let bounds: BTreeSet<&[u8]> = list.iter().filter(|t| t.start < t.end)
                    .flat_map(|t| [&*t.start, &*t.end])
                    .collect();
                prop_assert_eq!(cut.bounds_through(key), bounds.range(..=key).count());
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
                let fragment = cut.fragment_over(&[key]).filter(|&f| !cut.is_gap(f));
                if let Some(f) = fragment {
                    prop_assert!((cut.start(f)..cut.end(f)).contains(&[key].as_slice()));
                }
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
