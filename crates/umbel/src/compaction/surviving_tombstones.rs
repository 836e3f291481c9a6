//! The range tombstones that a compaction or a flush writes.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::iter::Peekable;

use umbel_base::{RangeTombstoneRef, SequenceNumber};

use crate::compaction::compaction_stream::SnapshotStripes;

/// A stripe of sequence numbers between snapshots; after the last boundary, each sequence number is
/// a stripe of its own.
type StripeId = (usize, SequenceNumber);

/// The stripe whose tombstones every reader sees.
const OLDEST: StripeId = (0, 0);

/// Sweep over the range tombstones of one stripe, in key order.
#[derive(Default)]
struct StripeSweep<'a> {
    /// Number of range tombstones over the current key, by sequence number.
    over: BTreeMap<SequenceNumber, usize>,
    /// Sequence number of the newest tombstone over the current key, and the key from which on it
    /// is the newest.
    newest: Option<(SequenceNumber, &'a [u8])>,
}

/// A start or end of a range tombstone.
struct Change {
    is_start: bool,
    sequence: SequenceNumber,
}

/// Iterates over the starts and ends of sorted range tombstones in key order. The sweep holds only
/// the tombstones over the current key.
struct BoundSweep<'a, I: Iterator<Item = RangeTombstoneRef<'a>>> {
    /// The tombstones that start after the current key, sorted by start.
    starting: Peekable<I>,
    /// The ends of the tombstones over the current key, the least end first.
    ending: BinaryHeap<Reverse<(&'a [u8], SequenceNumber)>>,
}

impl<'a, I: Iterator<Item = RangeTombstoneRef<'a>>> BoundSweep<'a, I> {
    fn new(sorted: I) -> BoundSweep<'a, I> {
        BoundSweep { starting: sorted.peekable(), ending: BinaryHeap::new() }
    }

    /// Returns the key of the next start or end.
    fn next_key(&mut self) -> Option<&'a [u8]> {
        let start = self.starting.peek().map(|tombstone| tombstone.start);
        let end = self.ending.peek().map(|Reverse((end, _))| *end);
        start.into_iter().chain(end).min()
    }

    /// Takes the next start or end at `key`; `None` if no further one is at `key`. REQUIRES: `key`
    /// is the result of `next_key`.
    fn next_at(&mut self, key: &[u8]) -> Option<Change> {
        if let Some(started) = self.starting.next_if(|tombstone| tombstone.start == key) {
            self.ending.push(Reverse((started.end, started.sequence)));
            return Some(Change { is_start: true, sequence: started.sequence });
        }
        let next = self.ending.peek_mut().filter(|next| next.0.0 == key)?;
        let Reverse((_, sequence)) = PeekMut::pop(next);
        Some(Change { is_start: false, sequence })
    }
}

/// The range tombstones to write, whose keys borrow from the inputs.
#[derive(Debug)]
pub struct SurvivingTombstones<'a> {
    /// The range tombstones, sorted by start, end and sequence number.
    tombstones: Vec<RangeTombstoneRef<'a>>,
    /// The greatest end of each [`END_BLOCK`] consecutive tombstones.
    block_ends: Vec<&'a [u8]>,
}

/// Number of tombstones that a search for those over a table passes over at once.
const END_BLOCK: usize = 64;

impl<'a> SurvivingTombstones<'a> {
    fn new(mut tombstones: Vec<RangeTombstoneRef<'a>>) -> SurvivingTombstones<'a> {
        if !tombstones.is_sorted() {
            tombstones.sort_unstable();
        }
        let greatest = |block: &[RangeTombstoneRef<'a>]| block.iter().map(|t| t.end).max();
        let block_ends = tombstones.chunks(END_BLOCK).filter_map(greatest).collect();
        SurvivingTombstones { tombstones, block_ends }
    }

    /// Whether no range tombstone survives.
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }

    /// Returns all surviving range tombstones, sorted by start, end and sequence number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RangeTombstoneRef<'a>> + Clone {
        self.tombstones.iter().copied()
    }

    /// Returns the range tombstones that overlap `lower..upper`, the key range of one output table,
    /// cut to that range.
    pub fn within<'b>(
        &self,
        lower: Option<&'b [u8]>,
        upper: Option<&'b [u8]>,
    ) -> impl Iterator<Item = RangeTombstoneRef<'b>>
    where
        'a: 'b,
    {
        let starts_before = |key| self.tombstones.partition_point(|t| t.start < key);
        let end = upper.map_or(self.tombstones.len(), starts_before);
        let blocks = self.tombstones[..end].chunks(END_BLOCK).zip(&self.block_ends);
        let blocks = blocks.filter(move |(_, end)| lower.is_none_or(|lower| lower < **end));
        blocks.flat_map(|(block, _)| block).filter_map(move |tombstone| {
            let start = lower.map_or(tombstone.start, |lower| lower.max(tombstone.start));
            let end = upper.map_or(tombstone.end, |upper| upper.min(tombstone.end));
            (start < end).then_some(RangeTombstoneRef { start, end, ..*tombstone })
        })
    }
}

/// Returns the range tombstones of the inputs to write. In each stripe only the newest tombstone
/// over a key is kept, and adjacent equal ones are joined. So there are at most two for each input
/// tombstone.
///
/// `is_bottommost` says whether no older entry lies beneath the inputs in `start..end`.
pub fn surviving_tombstones<'a, T: Into<RangeTombstoneRef<'a>>>(
    tombstones: impl IntoIterator<Item = T, IntoIter: Clone>,
    stripes: &SnapshotStripes,
    is_bottommost: impl FnMut(&[u8], &[u8]) -> bool,
) -> SurvivingTombstones<'a> {
    let tombstones = tombstones.into_iter().map(Into::into);
    let tombstones = tombstones.filter(|t: &RangeTombstoneRef<'a>| t.start < t.end);
    if tombstones.clone().is_sorted_by_key(|tombstone| tombstone.start) {
        return sweep(BoundSweep::new(tombstones), stripes, is_bottommost);
    }
    let mut sorted: Vec<_> = tombstones.collect();
    sorted.sort_unstable_by_key(|tombstone| tombstone.start);
    sweep(BoundSweep::new(sorted.into_iter()), stripes, is_bottommost)
}

fn sweep<'a>(
    mut bounds: BoundSweep<'a, impl Iterator<Item = RangeTombstoneRef<'a>>>,
    stripes: &SnapshotStripes,
    mut is_bottommost: impl FnMut(&[u8], &[u8]) -> bool,
) -> SurvivingTombstones<'a> {
    let mut sweeps: BTreeMap<StripeId, StripeSweep<'a>> = BTreeMap::new();
    let mut surviving = Vec::new();
    let mut changed = Vec::new();
    let mut next = bounds.next_key();
    while let Some(key) = next {
        changed.clear();
        while let Some(change) = bounds.next_at(key) {
            let stripe = stripes.stripe(change.sequence);
            sweeps.entry(stripe).or_default().apply(&change);
            changed.push(stripe);
        }
        // Whether older entries lie beneath depends on the keys up to the next bound.
        if sweeps.contains_key(&OLDEST) {
            changed.push(OLDEST);
        }
        changed.sort_unstable();
        changed.dedup();
        next = bounds.next_key();
        for &stripe in &changed {
            let Some(sweep) = sweeps.get_mut(&stripe) else { continue };
            let newest = sweep.over.last_key_value().map(|(&sequence, _)| sequence);
            let kept = newest.filter(|&sequence| {
                let is_bottom = |until| is_bottommost(key, until);
                !(stripes.all_see(sequence) && next.is_some_and(is_bottom))
            });
            surviving.extend(sweep.set_newest(kept, key));
            if newest.is_none() {
                sweeps.remove(&stripe);
            }
        }
    }
    SurvivingTombstones::new(surviving)
}

impl<'a> StripeSweep<'a> {
    fn apply(&mut self, change: &Change) {
        let count = self.over.entry(change.sequence).or_default();
        if change.is_start {
            *count += 1;
            return;
        }
        *count -= 1;
        if *count == 0 {
            self.over.remove(&change.sequence);
        }
    }

    /// Notes that tombstone `newest` is the newest from `key` on. Returns the piece of the previous
    /// newest tombstone, which ends at `key`.
    fn set_newest(
        &mut self,
        newest: Option<SequenceNumber>,
        key: &'a [u8],
    ) -> Option<RangeTombstoneRef<'a>> {
        if self.newest.map(|(sequence, _)| sequence) == newest {
            return None;
        }
        let ended = std::mem::replace(&mut self.newest, newest.map(|sequence| (sequence, key)));
        ended.map(|(sequence, start)| RangeTombstoneRef { start, end: key, sequence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A compaction with a snapshot read all tombstones again for each table that it wrote.
    #[test]
    fn search_for_tombstones_of_a_table_passes_over_those_before_it() {
        let keys: Vec<[u8; 4]> = (0..20_000_u32).map(u32::to_be_bytes).collect();
        let tombstone = |start: usize, end: usize, sequence| {
            let (start, end) = (keys[start].as_slice(), keys[end].as_slice());
            RangeTombstoneRef { start, end, sequence }
        };
        // A long one of an older stripe between short ones: the ends are not in order.
        let short = (0..9_000).map(|at| tombstone(2 * at, 2 * at + 1, 100));
        let tombstones: Vec<_> = short.chain([tombstone(3, 19_000, 5)]).collect();
        let surviving =
            surviving_tombstones(tombstones, &SnapshotStripes::new(vec![50]), |_, _| false);
        for (lower, upper) in [(0, 1), (2, 8), (4_000, 4_100), (17_990, 19_999), (19_500, 19_999)] {
            let (lower, upper) = (keys[lower].as_slice(), keys[upper].as_slice());
            let found: Vec<_> = surviving.within(Some(lower), Some(upper)).collect();
            let expected: Vec<_> = surviving
                .iter()
                .map(|t| RangeTombstoneRef {
                    start: t.start.max(lower),
                    end: t.end.min(upper),
                    ..t
                })
                .filter(|t| t.start < t.end)
                .collect();
            assert_eq!(found, expected);
        }
        let lower = keys[17_000].as_slice();
        let passed = surviving.block_ends.iter().filter(|end| **end <= lower).count();
        assert!(passed > 120, "{passed} of {}", surviving.block_ends.len());
    }
}
