//! [`Snapshots`]: which sequence numbers readers still look back to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbel_base::SequenceNumber;

/// The published sequence number and the snapshots below it.
///
/// INVARIANT: whoever takes a snapshot reads the published number under the same lock under which
/// compaction collects its boundaries, so that no snapshot appears below a boundary list it is
/// missing from.
///
/// Apart from what stands beside it: the published number changes with each write, and readers load
/// it with each read, but not what they need besides.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Snapshots {
    visible: AtomicU64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// How often each state is held, and when that was first seen.
    counts: BTreeMap<SequenceNumber, (usize, Option<Duration>)>,
    /// What somebody waits for.
    awaited: Awaited,
}

/// What readers have to let go of before something can be dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Awaited {
    /// The sequence number that the oldest reader has to reach.
    pub oldest: Option<SequenceNumber>,
    /// States of which one has to be held no more.
    pub gone: Vec<SequenceNumber>,
}

impl Awaited {
    /// Adds what else may come first.
    pub fn add(&mut self, other: Awaited) {
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
        self.gone.extend(other.gone);
        self.gone.sort_unstable();
        self.gone.dedup();
    }
}

impl Snapshots {
    /// Snapshots of a store whose newest write has this number.
    pub fn new(visible: SequenceNumber) -> Snapshots {
        Snapshots { visible: AtomicU64::new(visible), held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number up to which writes are visible.
    #[inline]
    pub fn visible(&self) -> SequenceNumber {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes writes up to `sequence` visible. REQUIRES: the commit lock.
    #[inline]
    pub fn publish(&self, sequence: SequenceNumber) {
        self.visible.store(sequence, Ordering::Release);
    }

    /// Holds the present state; REQUIRES a [`Snapshots::release`] later.
    pub fn hold(&self) -> SequenceNumber {
        let mut held = self.held();
        let sequence = self.visible();
        held.counts.entry(sequence).or_insert((0, None)).0 += 1;
        sequence
    }

    /// Holds a state once more that is held already.
    pub fn hold_again(&self, sequence: SequenceNumber) {
        self.held().counts.entry(sequence).or_insert((0, None)).0 += 1;
    }

    /// Lets go of a state held by [`Snapshots::hold`]. Answers whether somebody waited for it; see
    /// [`Snapshots::wait_for`].
    #[must_use]
    pub fn release(&self, sequence: SequenceNumber) -> bool {
        let mut held = self.held();
        let mut is_gone = false;
        if let Some((count, _)) = held.counts.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                held.counts.remove(&sequence);
                is_gone = held.awaited.gone.contains(&sequence);
            }
        }
        let oldest = self.oldest_of(&held);
        let answers = is_gone || held.awaited.oldest.is_some_and(|awaited| awaited <= oldest);
        if answers {
            held.awaited = Awaited::default();
        }
        answers
    }

    fn oldest_of(&self, held: &Held) -> SequenceNumber {
        held.counts.keys().next().copied().unwrap_or_else(|| self.visible())
    }

    /// Has the release answer yes by which some of this comes to pass. `false` where some has
    /// already.
    pub fn wait_for(&self, awaited: Awaited) -> bool {
        let mut held = self.held();
        let oldest = self.oldest_of(&held);
        let is_gone = |sequence: &SequenceNumber| !held.counts.contains_key(sequence);
        if awaited.oldest.is_some_and(|it| it <= oldest) || awaited.gone.iter().any(is_gone) {
            return false;
        }
        held.awaited.add(awaited);
        true
    }

    /// How many snapshots are held, the oldest, and when it was first seen by
    /// [`Snapshots::note_time`].
    pub fn summary(&self) -> (usize, Option<SequenceNumber>, Option<Duration>) {
        let held = self.held();
        let since = held.counts.values().filter_map(|(_, since)| *since).min();
        let count = held.counts.values().map(|(count, _)| count).sum();
        (count, held.counts.keys().next().copied(), since)
    }

    /// Notes that what is held by now is held at `now`. So that taking a snapshot asks no clock,
    /// whoever passes by notes the time.
    pub fn note_time(&self, now: Duration) {
        let mut held = self.held();
        held.counts.values_mut().for_each(|(_, since)| *since = Some(since.unwrap_or(now)));
    }

    /// The sequence numbers at which somebody may read, ascending, the published one last:
    /// versions may be dropped only between them.
    pub fn boundaries(&self) -> Vec<SequenceNumber> {
        let held = self.held();
        let visible = self.visible();
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::SnapshotsForgotten.is_on() {
            return vec![visible];
        }
        let mut boundaries: Vec<_> = held.counts.keys().copied().collect();
        if boundaries.last() != Some(&visible) {
            boundaries.push(visible);
        }
        boundaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_the_held_states_and_the_present() {
        let snapshots = Snapshots::new(5);
        let first = snapshots.hold();
        let again = snapshots.hold();
        snapshots.publish(9);
        assert_eq!((first, again), (5, 5));
        assert_eq!(snapshots.boundaries(), [5, 9]);
        let seven = || Awaited { oldest: Some(7), gone: Vec::new() };
        assert!(snapshots.wait_for(seven()), "a reader is older");
        assert!(!snapshots.release(first), "it is held once more");
        assert_eq!(snapshots.boundaries(), [5, 9]);
        assert!(snapshots.release(again));
        assert!(!snapshots.wait_for(Awaited { oldest: Some(9), gone: Vec::new() }));
        assert_eq!(snapshots.boundaries(), [9]);
        assert_eq!(snapshots.summary(), (0, None, None));
    }

    #[test]
    fn whoever_waits_for_a_newer_state_is_told_too() {
        let snapshots = Snapshots::new(5);
        let older = snapshots.hold();
        snapshots.publish(9);
        let newer = snapshots.hold();
        let gone = || Awaited { oldest: None, gone: vec![9] };
        assert!(snapshots.wait_for(gone()));
        assert!(snapshots.release(newer));
        assert!(!snapshots.wait_for(gone()));
        assert!(!snapshots.release(older));
    }
}
