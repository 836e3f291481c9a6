//! What the server acknowledged, and what was wrong.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::plan::{APPENDERS, Kind, STREAMS, WRITERS, first_writer};

/// How many sentences about what was wrong are kept.
const WRONG_KEPT: usize = 20;
/// How many places among all events are remembered, from where reads begin.
const PLACES: usize = 1 << 10;
/// How many deleted streams are remembered, to be looked at after the end.
const DELETED: usize = 200;

/// What is left of a stream that was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// It is not there.
    Nothing,
    /// It was deleted for good.
    Tombstone,
    /// It came back with one event, of this revision.
    Back(u64),
}

/// What is known to be so.
#[derive(Debug)]
pub(super) struct Ledger {
    begun: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    streams: Vec<AtomicU64>,
    deleted: Mutex<VecDeque<(String, Left)>>,
    users: Mutex<BTreeMap<String, bool>>,
    places: Mutex<VecDeque<u64>>,
    wrong: Mutex<Vec<String>>,
    wrong_count: AtomicU64,
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// Nothing was appended.
    pub(super) fn new() -> Ledger {
        Ledger {
            begun: zeros(WRITERS),
            done: zeros(WRITERS),
            streams: zeros(2 * APPENDERS * STREAMS),
            deleted: Mutex::default(),
            users: Mutex::default(),
            places: Mutex::default(),
            wrong: Mutex::default(),
            wrong_count: AtomicU64::new(0),
        }
    }

    /// The numbers of a writer's next events, which he is about to append.
    pub(super) fn begin(&self, writer: usize, events: u64) -> Range<u64> {
        let first = self.begun[writer].fetch_add(events, Ordering::SeqCst);
        first..first + events
    }

    /// All that a writer has begun was acknowledged.
    pub(super) fn acknowledged(&self, writer: usize) {
        let begun = self.begun[writer].load(Ordering::SeqCst);
        self.done[writer].store(begun, Ordering::SeqCst);
    }

    /// How many events of a writer were acknowledged, and how many were begun.
    pub(super) fn of(&self, writer: usize) -> (u64, u64) {
        let done = self.done[writer].load(Ordering::SeqCst);
        (done, self.begun[writer].load(Ordering::SeqCst))
    }

    /// How many were acknowledged in all.
    pub(super) fn events(&self) -> u64 {
        self.done.iter().map(|done| done.load(Ordering::SeqCst)).sum()
    }

    /// How many events of one of the [streams](stream_name) were acknowledged.
    pub(super) fn in_stream(&self, stream: usize) -> u64 {
        self.streams[stream].load(Ordering::SeqCst)
    }

    /// So many more were.
    pub(super) fn add_to_stream(&self, stream: usize, events: u64) {
        self.streams[stream].fetch_add(events, Ordering::SeqCst);
    }

    /// How many streams there are that grow all the time.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// A stream was deleted, and this is left of it.
    pub(super) fn deleted(&self, name: String, left: Left) {
        let mut deleted = locked(&self.deleted);
        if deleted.len() == DELETED {
            deleted.pop_front();
        }
        deleted.push_back((name, left));
    }

    /// Those that were deleted last.
    pub(super) fn all_deleted(&self) -> Vec<(String, Left)> {
        locked(&self.deleted).iter().cloned().collect()
    }

    /// A user is there, or not; `None`: nobody knows, because a call about him is under way.
    pub(super) fn user(&self, name: &str, is_there: Option<bool>) {
        match is_there {
            Some(is_there) => locked(&self.users).insert(name.to_string(), is_there),
            None => locked(&self.users).remove(name),
        };
    }

    /// The users of whom is known whether they are there.
    pub(super) fn users(&self) -> BTreeMap<String, bool> {
        locked(&self.users).clone()
    }

    /// There is an event at this place.
    pub(super) fn remember(&self, place: u64) {
        let mut places = locked(&self.places);
        if places.len() == PLACES {
            // Every other one goes, so that what stays covers all.
            let mut keep = false;
            places.retain(|_| {
                keep = !keep;
                keep
            });
        }
        places.push_back(place);
    }

    /// A place of an event; which, `choice` says.
    pub(super) fn place(&self, choice: u64) -> Option<u64> {
        let places = locked(&self.places);
        let count = places.len() as u64;
        places.get(choice.checked_rem(count)? as usize).copied()
    }

    /// Something was wrong.
    pub(super) fn wrong(&self, what: String) {
        self.wrong_count.fetch_add(1, Ordering::SeqCst);
        let mut wrong = locked(&self.wrong);
        if wrong.len() < WRONG_KEPT {
            eprintln!("wrong: {what}");
            wrong.push(what);
        }
    }

    /// How often, and the first of it.
    pub(super) fn all_wrong(&self) -> (u64, Vec<String>) {
        (self.wrong_count.load(Ordering::SeqCst), locked(&self.wrong).clone())
    }
}

/// The name of a stream that grows all the time.
pub(super) fn stream_name(stream: usize) -> String {
    format!("soak-old-{:02}-{:02}", stream / STREAMS, stream % STREAMS)
}

/// The streams of a writer that grow all the time: his `choice`-th.
pub(super) fn stream_of(writer: usize, choice: u64) -> usize {
    let first = first_writer(Kind::AppendOld).unwrap_or_default();
    (writer - first) * STREAMS + (choice % STREAMS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_begun_in_order_and_acknowledged_later() {
        let ledger = Ledger::new();
        assert_eq!(ledger.begin(3, 1), 0..1);
        assert_eq!(ledger.begin(3, 20), 1..21);
        assert_eq!(ledger.of(3), (0, 21));
        ledger.acknowledged(3);
        assert_eq!((ledger.of(3), ledger.events()), ((21, 21), 21));
    }

    #[test]
    fn places_stay_few_and_reach_back_to_the_first() {
        let ledger = Ledger::new();
        assert_eq!(ledger.place(7), None);
        (0..100_000).for_each(|place| ledger.remember(place));
        assert_eq!(ledger.place(0), Some(0));
        assert!(locked(&ledger.places).len() <= PLACES);
    }

    #[test]
    fn every_stream_belongs_to_one_writer() {
        let writers = (1..3).flat_map(|kind| (0..APPENDERS).map(move |at| kind * APPENDERS + at));
        let all = writers.flat_map(|writer| (0..STREAMS as u64).map(move |k| stream_of(writer, k)));
        let count = Ledger::new().streams();
        assert_eq!(all.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
    }
}
