//! The quota of the event log: appends are refused, and what frees space remains possible.

use umbel_events::{
    AppendRequest, Direction, Durability, Error, ExpectedVersion, NewEvent, Revision,
    ScavengeOptions, Store, StoreOptions, StreamAppend,
};
use umbel_sim::Sim;

use super::support::{append, append_large, event, id, options, outline};

const QUOTA_BYTES: u64 = 400 << 10;
/// Reserve above a quota of up to 16 MiB.
const RESERVE_BYTES: u64 = 1 << 20;

fn open(sim: &Sim, durability: Durability, log_quota_bytes: Option<u64>) -> Store {
    let settings = StoreOptions { durability, log_quota_bytes, ..options(sim) };
    Store::open("/events", settings).expect("opened")
}

/// Appends events of `bytes` bytes to a stream until one is refused. Returns the number of appended
/// events and the error.
fn fill(store: &Store, stream: &str, bytes: usize) -> (u64, Error) {
    let data = vec![7; bytes];
    for number in 0.. {
        let event = NewEvent::binary(id(number), "Large", &data);
        if let Err(error) = store.append(stream, ExpectedVersion::Any, &[event]) {
            return (number, error);
        }
    }
    unreachable!("the quota ends the appends")
}

fn log_bytes(store: &Store) -> u64 {
    store.stats().expect("statistics").log_bytes
}

/// Story: clients that append without end filled the disk, and with it the index and other programs
/// on the machine.
#[test]
fn full_quota_refuses_appends_until_a_scavenge() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let sim = Sim::new(1);
        let store = open(&sim, durability, Some(QUOTA_BYTES));
        append(&store, "kept", 0..3);
        let (appended, error) = fill(&store, "a", 3000);
        assert!(appended > 100, "{appended}");
        let Error::LogQuotaExceeded { bytes, log_bytes: reported, quota_bytes, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((reported, quota_bytes), (log_bytes(&store), QUOTA_BYTES));
        assert!(bytes > 3000 && reported <= QUOTA_BYTES && reported + bytes > QUOTA_BYTES);
        assert!(error.to_string().contains("--log-quota"), "{error}");
        // Story: the command had the word DIR, although the store knows its directory.
        let command = "`umbel scavenge --now --db /events`";
        assert!(error.to_string().contains(command), "{error}");
        // A retry writes nothing.
        let data = vec![7; 3000];
        let known = NewEvent::binary(id(appended - 1), "Large", &data);
        store.append("a", ExpectedVersion::Any, &[known]).expect("it is in the log");
        let read = outline(store.read("a", Revision::START, Direction::Forwards));
        assert_eq!(read.len() as u64, appended, "the refused append left nothing");
        store.delete("a", ExpectedVersion::Any).expect("a delete uses the reserve");
        append(&store, "$progress", 7..8);
        append_large(&store, "$progress", 8, 9000);
        assert!(log_bytes(&store) > QUOTA_BYTES);
        let (appended, error) = fill(&store, "b", 10);
        assert!(appended == 0 && matches!(error, Error::LogQuotaExceeded { .. }), "{error}");
        let every = ScavengeOptions { removes_all: true, ..ScavengeOptions::default() };
        store.scavenge(&every).expect("scavenged");
        assert!(log_bytes(&store) < QUOTA_BYTES / 4, "{}", log_bytes(&store));
        append(&store, "b", 0..100);
        assert!(store.verify().expect("verified").damage.is_empty());
        store.close().expect("closed");
        let store = open(&sim, durability, Some(QUOTA_BYTES));
        assert!(fill(&store, "c", 3000).0 > 50, "the quota counts the scavenged files");
        assert!(log_bytes(&store) <= QUOTA_BYTES);
    }
}

#[test]
fn quota_may_be_lower_than_the_log_and_belongs_to_the_open() {
    let sim = Sim::new(1);
    let store = open(&sim, Durability::Buffered, None);
    for number in 0..60 {
        append_large(&store, "a", number, 3000);
    }
    store.close().expect("closed");
    let store = open(&sim, Durability::Buffered, Some(100 << 10));
    let refused = store.append("a", ExpectedVersion::Any, &[event(99)]).expect_err("refused");
    assert!(matches!(refused, Error::LogQuotaExceeded { .. }), "{refused}");
    store.delete("a", ExpectedVersion::Any).expect("deleted");
    store.close().expect("closed");
    let store = open(&sim, Durability::Buffered, None);
    append(&store, "b", 0..3);
    let tiny = StoreOptions { log_quota_bytes: Some(4096), ..options(&sim) };
    let message = Store::open("/other", tiny).expect_err("too small").to_string();
    assert!(message.contains("log_quota_bytes is 4096, but must be at least 65536"), "{message}");
}

/// Deletes and system streams cannot fill the disk either.
#[test]
fn reserve_above_the_quota_is_limited() {
    for stream in ["$$cart", "$system"] {
        let sim = Sim::new(1);
        let store = open(&sim, Durability::Buffered, Some(QUOTA_BYTES));
        let text = format!("{{\"x\":\"{}\"}}", "y".repeat(20_000));
        let mut number = 0;
        let error = loop {
            let event = NewEvent::json(id(number), "Large", text.as_bytes());
            match store.append(stream, ExpectedVersion::Any, &[event]) {
                Ok(_) => number += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::LogQuotaExceeded { .. }), "{stream}: {error}");
        let left = QUOTA_BYTES + RESERVE_BYTES - log_bytes(&store);
        assert!(left < 21_000, "{stream}: {left}");
    }
}

/// A refused append does not keep those submitted with it from being written.
#[test]
fn only_the_append_over_the_quota_is_refused() {
    let sim = Sim::new(1);
    let store = open(&sim, Durability::Synced, Some(QUOTA_BYTES));
    let long = vec![7; 500_000];
    let events = [[event(1)], [NewEvent::binary(id(2), "Long", &long)], [event(3)]];
    let appends = events
        .each_ref()
        .map(|events| [StreamAppend { stream: "a", expected: ExpectedVersion::Any, events }]);
    let requests: Vec<_> =
        appends.iter().map(|appends| AppendRequest { appends, checks: &[] }).collect();
    let done = store.submit_each(&requests);
    let done = done.into_iter().map(|done| done.is_ok_and(|pending| pending.wait().is_ok()));
    assert_eq!(done.collect::<Vec<bool>>(), [true, false, true]);
    let read = outline(store.read("a", Revision::START, Direction::Forwards));
    assert_eq!(read, [(0, id(1)), (1, id(3))]);
}
