//! The range tombstones that a compaction or a flush writes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use umbel_base::{RangeTombstone, SequenceNumber};

use crate::compaction::compaction_stream::SnapshotStripes;

/// A stripe of snapshots; after the last boundary, each sequence number is one of its own.
type StripeId = (usize, SequenceNumber);

/// The stripe whose tombstones every reader sees.
const OLDEST: StripeId = (0, 0);

/// Sweep over one stripe, in key order.
#[derive(Default)]
struct StripeSweep<'a> {
    /// Number of tombstones over the current key, by sequence number.
    over: BTreeMap<SequenceNumber, usize>,
    /// The newest of them, and the key since which it is the newest.
    newest: Option<(SequenceNumber, &'a [u8])>,
}

/// A bound of a tombstone.
struct Change<'a> {
    key: &'a [u8],
    is_start: bool,
    sequence: SequenceNumber,
}

/// Returns the range tombstones of the inputs to write, sorted by start, newest first. Of
/// tombstones in one stripe only the newest over each key is kept, and adjacent equal ones are
/// joined: at most two for each input.
///
/// `is_bottommost` says whether no older entry lies beneath the inputs in `start..end`.
pub fn surviving_tombstones<'a>(
    tombstones: impl IntoIterator<Item = &'a RangeTombstone>,
    stripes: &SnapshotStripes,
    mut is_bottommost: impl FnMut(&[u8], &[u8]) -> bool,
) -> Vec<RangeTombstone> {
    let bounds = |t: &'a RangeTombstone| {
        let change = |key, is_start| Change { key, is_start, sequence: t.sequence };
        [change(&t.start, true), change(&t.end, false)]
    };
    let tombstones = tombstones.into_iter().filter(|t| t.start < t.end);
    let mut changes: Vec<Change<'a>> = tombstones.flat_map(bounds).collect();
    changes.sort_unstable_by_key(|change| change.key);
    let mut sweeps: BTreeMap<StripeId, StripeSweep<'a>> = BTreeMap::new();
    let mut surviving = Vec::new();
    let mut changed = Vec::new();
    let mut groups = changes.chunk_by(|a, b| a.key == b.key).peekable();
    while let Some(group) = groups.next() {
        let key = group[0].key;
        changed.clear();
        for change in group {
            let stripe = stripes.stripe(change.sequence);
            sweeps.entry(stripe).or_default().apply(change);
            changed.push(stripe);
        }
        // Whether older entries lie beneath depends on the keys up to the next bound.
        if sweeps.contains_key(&OLDEST) {
            changed.push(OLDEST);
        }
        changed.sort_unstable();
        changed.dedup();
        let until = groups.peek().map(|next| next[0].key);
        for &stripe in &changed {
            let Some(sweep) = sweeps.get_mut(&stripe) else { continue };
            let newest = sweep.over.last_key_value().map(|(&sequence, _)| sequence);
            let kept = newest.filter(|&sequence| {
                let is_bottom = |until| is_bottommost(key, until);
                !(stripes.all_see(sequence) && until.is_some_and(is_bottom))
            });
            surviving.extend(sweep.set_newest(kept, key));
            if newest.is_none() {
                sweeps.remove(&stripe);
            }
        }
    }
    surviving.sort_unstable_by(|a, b| {
        (&a.start, Reverse(a.sequence)).cmp(&(&b.start, Reverse(b.sequence)))
    });
    surviving
}

impl<'a> StripeSweep<'a> {
    fn apply(&mut self, change: &Change<'a>) {
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

    /// From `key` on, `newest` is the newest. Returns the tombstone that ends there.
    fn set_newest(
        &mut self,
        newest: Option<SequenceNumber>,
        key: &'a [u8],
    ) -> Option<RangeTombstone> {
        if self.newest.map(|(sequence, _)| sequence) == newest {
            return None;
        }
        let ended = std::mem::replace(&mut self.newest, newest.map(|sequence| (sequence, key)));
        ended.map(|(sequence, start)| RangeTombstone {
            start: start.to_vec(),
            end: key.to_vec(),
            sequence,
        })
    }
}

/// Cuts `tombstones` to `lower..upper`, the keys of one output table.
pub fn clip(
    tombstones: &[RangeTombstone],
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> Vec<RangeTombstone> {
    let part = |tombstone: &RangeTombstone| {
        let start = lower.map_or(tombstone.start.as_slice(), |l| l.max(&tombstone.start));
        let end = upper.map_or(tombstone.end.as_slice(), |u| u.min(&tombstone.end));
        let sequence = tombstone.sequence;
        (start < end).then(|| RangeTombstone { start: start.to_vec(), end: end.to_vec(), sequence })
    };
    tombstones.iter().filter_map(part).collect()
}
