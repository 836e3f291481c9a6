//! Oracle of the soak: acknowledgments of the server, and errors.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use umbel_base::ignore_poison::IgnorePoison;

use crate::serving::soak::soak_plan::{APPENDERS, STREAMS, SoakWork, WRITERS, first_writer};

/// Number of error sentences that are kept.
const WRONG_KEPT: usize = 20;
/// Number of kept event positions, at which reads begin.
const POSITIONS_KEPT: usize = 1 << 10;
/// Number of deleted streams that are kept for the check after the end.
const DELETED: usize = 200;

/// State of a stream after its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeletedStreamState {
    /// The stream does not exist.
    Nothing,
    /// The stream has a tombstone.
    Tombstone,
    /// The stream exists again, with one event that has this revision.
    Back(u64),
}

/// Acknowledged state of the server.
#[derive(Debug)]
pub(super) struct SoakOracle {
    begun: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    streams: Vec<AtomicU64>,
    deleted: Mutex<VecDeque<(String, DeletedStreamState)>>,
    users: Mutex<BTreeMap<String, bool>>,
    positions: Mutex<VecDeque<u64>>,
    wrong: Mutex<Vec<String>>,
    wrong_count: AtomicU64,
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl SoakOracle {
    /// Makes the oracle of an empty store.
    pub(super) fn new() -> SoakOracle {
        SoakOracle {
            begun: zeros(WRITERS),
            done: zeros(WRITERS),
            streams: zeros(2 * APPENDERS * STREAMS),
            deleted: Mutex::default(),
            users: Mutex::default(),
            positions: Mutex::default(),
            wrong: Mutex::default(),
            wrong_count: AtomicU64::new(0),
        }
    }

    /// Returns the numbers of a writer's next events, which the writer is about to append.
    pub(super) fn begin(&self, writer: usize, events: u64) -> Range<u64> {
        let first = self.begun[writer].fetch_add(events, Ordering::SeqCst);
        first..first + events
    }

    /// Records that all events that a writer has begun are acknowledged.
    pub(super) fn acknowledged(&self, writer: usize) {
        let begun = self.begun[writer].load(Ordering::SeqCst);
        self.done[writer].store(begun, Ordering::SeqCst);
    }

    /// Returns the number of a writer's acknowledged events, and the number of its events begun.
    pub(super) fn of(&self, writer: usize) -> (u64, u64) {
        let done = self.done[writer].load(Ordering::SeqCst);
        (done, self.begun[writer].load(Ordering::SeqCst))
    }

    /// Returns the number of all acknowledged events.
    pub(super) fn events(&self) -> u64 {
        self.done.iter().map(|done| done.load(Ordering::SeqCst)).sum()
    }

    /// Returns the number of acknowledged events of one of the [streams](stream_name).
    pub(super) fn in_stream(&self, stream: usize) -> u64 {
        self.streams[stream].load(Ordering::SeqCst)
    }

    /// Adds acknowledged events of a stream.
    pub(super) fn add_to_stream(&self, stream: usize, events: u64) {
        self.streams[stream].fetch_add(events, Ordering::SeqCst);
    }

    /// Returns the number of growing streams.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Records the state of a stream after its deletion.
    pub(super) fn deleted(&self, name: String, left: DeletedStreamState) {
        let mut deleted = self.deleted.lock().ignore_poison();
        if deleted.len() == DELETED {
            deleted.pop_front();
        }
        deleted.push_back((name, left));
    }

    /// Returns the streams that were deleted last.
    pub(super) fn all_deleted(&self) -> Vec<(String, DeletedStreamState)> {
        self.deleted.lock().ignore_poison().iter().cloned().collect()
    }

    /// Records whether a user exists; `None` is unknown, because a call about it is in flight.
    pub(super) fn user(&self, name: &str, is_there: Option<bool>) {
        match is_there {
            Some(is_there) => self.users.lock().ignore_poison().insert(name.to_string(), is_there),
            None => self.users.lock().ignore_poison().remove(name),
        };
    }

    /// Returns the users whose state is known.
    pub(super) fn users(&self) -> BTreeMap<String, bool> {
        self.users.lock().ignore_poison().clone()
    }

    /// Records the position of an event.
    pub(super) fn remember(&self, position: u64) {
        let mut positions = self.positions.lock().ignore_poison();
        if positions.len() == POSITIONS_KEPT {
            // Every other position is dropped, so that the rest still covers the whole log.
            let mut keep = false;
            positions.retain(|_| {
                keep = !keep;
                keep
            });
        }
        positions.push_back(position);
    }

    /// Returns one of the recorded positions, by `choice`.
    pub(super) fn random_position(&self, choice: u64) -> Option<u64> {
        let positions = self.positions.lock().ignore_poison();
        let count = positions.len() as u64;
        positions.get(choice.checked_rem(count)? as usize).copied()
    }

    /// Records an error.
    pub(super) fn wrong(&self, what: String) {
        self.wrong_count.fetch_add(1, Ordering::SeqCst);
        let mut wrong = self.wrong.lock().ignore_poison();
        if wrong.len() < WRONG_KEPT {
            eprintln!("wrong: {what}");
            wrong.push(what);
        }
    }

    /// Returns the number of errors, and the first errors.
    pub(super) fn all_wrong(&self) -> (u64, Vec<String>) {
        (self.wrong_count.load(Ordering::SeqCst), self.wrong.lock().ignore_poison().clone())
    }
}

/// Returns the name of a growing stream.
pub(super) fn stream_name(stream: usize) -> String {
    format!("soak-old-{:02}-{:02}", stream / STREAMS, stream % STREAMS)
}

/// Returns the growing stream of a writer that the number `choice` selects.
pub(super) fn stream_of(writer: usize, choice: u64) -> usize {
    let first = first_writer(SoakWork::AppendOld).unwrap_or_default();
    (writer - first) * STREAMS + (choice % STREAMS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begun_numbers_are_acknowledged_later() {
        let oracle = SoakOracle::new();
        assert_eq!(oracle.begin(3, 1), 0..1);
        assert_eq!(oracle.begin(3, 20), 1..21);
        assert_eq!(oracle.of(3), (0, 21));
        oracle.acknowledged(3);
        assert_eq!((oracle.of(3), oracle.events()), ((21, 21), 21));
    }

    #[test]
    fn kept_positions_are_bounded_and_cover_the_log() {
        let oracle = SoakOracle::new();
        assert_eq!(oracle.random_position(7), None);
        (0..100_000).for_each(|position| oracle.remember(position));
        assert_eq!(oracle.random_position(0), Some(0));
        assert!(oracle.positions.lock().ignore_poison().len() <= POSITIONS_KEPT);
    }

    #[test]
    fn every_stream_belongs_to_one_writer() {
        let writers = (1..3).flat_map(|kind| (0..APPENDERS).map(move |at| kind * APPENDERS + at));
        let all = writers.flat_map(|writer| (0..STREAMS as u64).map(move |k| stream_of(writer, k)));
        let count = SoakOracle::new().streams();
        assert_eq!(all.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
    }
}
