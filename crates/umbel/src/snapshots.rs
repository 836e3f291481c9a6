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
    /// The sequence number that somebody waits for the oldest reader to reach.
    awaited: Option<SequenceNumber>,
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
    /// [`Snapshots::await_oldest`].
    #[must_use]
    pub fn release(&self, sequence: SequenceNumber) -> bool {
        let mut held = self.held();
        if let Some((count, _)) = held.counts.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                held.counts.remove(&sequence);
            }
        }
        let oldest = self.oldest_of(&held);
        held.awaited.take_if(|awaited| *awaited <= oldest).is_some()
    }

    fn oldest_of(&self, held: &Held) -> SequenceNumber {
        held.counts.keys().next().copied().unwrap_or_else(|| self.visible())
    }

    /// The oldest sequence number at which somebody may read. It never becomes less.
    pub fn oldest(&self) -> SequenceNumber {
        self.oldest_of(&self.held())
    }

    /// Has the release answer yes by which the oldest reader reaches `sequence`. `false` where it
    /// has done so already.
    pub fn await_oldest(&self, sequence: SequenceNumber) -> bool {
        let mut held = self.held();
        if self.oldest_of(&held) >= sequence {
            return false;
        }
        held.awaited = Some(held.awaited.map_or(sequence, |awaited| awaited.min(sequence)));
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
        assert!(snapshots.await_oldest(7), "a reader is older");
        assert!(!snapshots.release(first), "it is held once more");
        assert_eq!(snapshots.boundaries(), [5, 9]);
        assert!(snapshots.release(again));
        assert!(!snapshots.await_oldest(9));
        assert_eq!(snapshots.boundaries(), [9]);
        assert_eq!(snapshots.summary(), (0, None, None));
    }
}
