//! [`SnapshotList`]: the sequence numbers at which readers still read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::SequenceNumber;

/// The published sequence number, and the snapshots below it.
///
/// INVARIANT: a reader takes a snapshot, with the published number, under the lock under which a
/// compaction collects its boundaries. So every snapshot is either in the compaction's list of
/// boundaries, or not older than the last boundary.
///
/// The list is in a cache line of its own: writes change the published number, which every read
/// loads, but reads need no neighbouring field of the store.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SnapshotList {
    visible: AtomicU64,
    states: Mutex<SnapshotStates>,
}

#[derive(Debug, Default)]
struct SnapshotStates {
    /// For each snapshot's sequence number, the number of its holders, and the time when the
    /// snapshot was first recorded.
    counts: BTreeMap<SequenceNumber, (usize, Option<Duration>)>,
    /// Releases of snapshots for which a thread waits.
    awaited: AwaitedRelease,
}

/// Snapshots that readers must release before a compaction can drop more entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwaitedRelease {
    /// The sequence number that the oldest reader must reach.
    pub oldest: Option<SequenceNumber>,
    /// Sequence numbers of snapshots of which one must be released.
    pub released_one_of: Vec<SequenceNumber>,
}

impl AwaitedRelease {
    /// Adds the releases of `other`; the first release that happens counts.
    pub fn add(&mut self, other: AwaitedRelease) {
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
        self.released_one_of.extend(other.released_one_of);
        self.released_one_of.sort_unstable();
        self.released_one_of.dedup();
    }
}

impl SnapshotList {
    /// Creates the list for a store whose newest write has the sequence number `visible`.
    pub fn new(visible: SequenceNumber) -> SnapshotList {
        SnapshotList { visible: AtomicU64::new(visible), states: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, SnapshotStates> {
        self.states.lock().ignore_poison()
    }

    /// The sequence number up to which writes are visible.
    #[inline]
    pub fn visible(&self) -> SequenceNumber {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes writes up to `sequence` visible. REQUIRES: the caller holds the commit lock.
    #[inline]
    pub fn publish(&self, sequence: SequenceNumber) {
        self.visible.store(sequence, Ordering::Release);
    }

    /// Takes a snapshot of the present state and returns its sequence number. REQUIRES: a
    /// [`SnapshotList::release`] later.
    pub fn acquire(&self) -> SequenceNumber {
        let mut held = self.lock();
        let sequence = self.visible();
        held.counts.entry(sequence).or_insert((0, None)).0 += 1;
        sequence
    }

    /// Adds a holder to the snapshot at `sequence`, which has one already.
    pub fn acquire_again(&self, sequence: SequenceNumber) {
        self.lock().counts.entry(sequence).or_insert((0, None)).0 += 1;
    }

    /// Removes a holder of the snapshot at `sequence`. Returns whether a thread waited for the
    /// release of the snapshot; see [`SnapshotList::await_release`].
    #[must_use]
    pub fn release(&self, sequence: SequenceNumber) -> bool {
        let mut held = self.lock();
        let mut is_released = false;
        if let Some((count, _)) = held.counts.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                held.counts.remove(&sequence);
                is_released = held.awaited.released_one_of.binary_search(&sequence).is_ok();
            }
        }
        let oldest = self.oldest_of(&held);
        let answers = is_released || held.awaited.oldest.is_some_and(|awaited| awaited <= oldest);
        if answers {
            held.awaited = AwaitedRelease::default();
        }
        answers
    }

    fn oldest_of(&self, held: &SnapshotStates) -> SequenceNumber {
        held.counts.keys().next().copied().unwrap_or_else(|| self.visible())
    }

    /// Makes [`SnapshotList::release`] return `true` when one of the releases `awaited` happens.
    /// Returns `false` if one has already happened.
    pub fn await_release(&self, awaited: AwaitedRelease) -> bool {
        let mut held = self.lock();
        let oldest = self.oldest_of(&held);
        let is_released = |sequence: &SequenceNumber| !held.counts.contains_key(sequence);
        if awaited.oldest.is_some_and(|it| it <= oldest)
            || awaited.released_one_of.iter().any(is_released)
        {
            return false;
        }
        held.awaited.add(awaited);
        true
    }

    /// Returns the number of snapshots, the oldest one, and the time when
    /// [`SnapshotList::note_time`] first recorded the oldest one.
    pub fn summary(&self) -> (usize, Option<SequenceNumber>, Option<Duration>) {
        let held = self.lock();
        let since = held.counts.values().filter_map(|(_, since)| *since).min();
        let count = held.counts.values().map(|(count, _)| count).sum();
        (count, held.counts.keys().next().copied(), since)
    }

    /// Records the time `now` for the snapshots that have no time yet. Taking a snapshot reads no
    /// clock, so other calls record the time.
    pub fn note_time(&self, now: Duration) {
        let mut held = self.lock();
        held.counts.values_mut().for_each(|(_, since)| *since = Some(since.unwrap_or(now)));
    }

    /// Returns the sequence numbers at which readers can read, ascending, the published one last. A
    /// compaction drops only entries that no reader at these numbers sees.
    pub fn boundaries(&self) -> Vec<SequenceNumber> {
        fail_point!("compaction-forget-snapshots", |_| vec![self.visible()]);
        let held = self.lock();
        let visible = self.visible();
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
    fn boundaries_are_snapshots_and_latest_state() {
        let snapshots = SnapshotList::new(5);
        let first = snapshots.acquire();
        let again = snapshots.acquire();
        snapshots.publish(9);
        assert_eq!((first, again), (5, 5));
        assert_eq!(snapshots.boundaries(), [5, 9]);
        let seven = || AwaitedRelease { oldest: Some(7), released_one_of: Vec::new() };
        assert!(snapshots.await_release(seven()), "a reader is older");
        assert!(!snapshots.release(first), "it is held a second time");
        assert_eq!(snapshots.boundaries(), [5, 9]);
        assert!(snapshots.release(again));
        assert!(
            !snapshots
                .await_release(AwaitedRelease { oldest: Some(9), released_one_of: Vec::new() })
        );
        assert_eq!(snapshots.boundaries(), [9]);
        assert_eq!(snapshots.summary(), (0, None, None));
    }

    #[test]
    fn release_notifies_waits_for_newer_snapshots() {
        let snapshots = SnapshotList::new(5);
        let older = snapshots.acquire();
        snapshots.publish(9);
        let newer = snapshots.acquire();
        let released = || AwaitedRelease { oldest: None, released_one_of: vec![9] };
        assert!(snapshots.await_release(released()));
        assert!(snapshots.release(newer));
        assert!(!snapshots.await_release(released()));
        assert!(!snapshots.release(older));
    }
}
