//! Benchmark of reads of views and of their cost for an append, for a manual run in a release build
//! on an idle machine.

use std::sync::Arc;
use std::time::Duration;

use umbel_env::{Clock, Env};
use umbel_events::{
    Direction, ExpectedVersion, NewEvent, Position, Revision, Store, StoreOptions, ViewKind,
};

use super::support::id;

const EVENTS: u64 = 1_000_000;
const ROUNDS: usize = 5;

/// A clock, and its current time.
fn begin() -> (Arc<dyn Clock>, Duration) {
    let clock = Env::system().clock;
    let begun = clock.now();
    (clock, begun)
}

fn rate(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64() / 1e3
}

/// Reads all items of an iterator. Returns thousands of events per second.
fn read_rate<T>(events: impl Iterator<Item = umbel_events::Result<T>>) -> f64 {
    let (clock, begun) = begin();
    let mut read = 0;
    for event in events {
        event.expect("readable");
        read += 1;
    }
    assert_eq!(read, EVENTS);
    rate(read, clock.now() - begun)
}

fn with_events(streams: u64, data: &[u8]) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path().join("events"), StoreOptions::default());
    let store = store.expect("a store");
    for first in (0..EVENTS).step_by(10) {
        let stream = format!("cart-{}", first / 10 % streams);
        let events: Vec<_> = (first..first + 10)
            .map(|number| NewEvent::binary(id(number), "Happened", data))
            .collect();
        store.append(&stream, ExpectedVersion::Any, &events).expect("appended");
        store.append("plain", ExpectedVersion::Any, &events).expect("appended");
    }
    store.flush().expect("flushed");
    (folder, store)
}

#[test]
#[ignore = "takes a minute; needs a release build and an idle machine"]
fn category_is_read_at_least_half_as_fast_as_a_stream() {
    let data = [b'x'; 100];
    for (streams, has_metadata) in [(1, false), (10_000, false), (10_000, true)] {
        let (_folder, store) = with_events(streams, &data);
        if has_metadata {
            let metadata = NewEvent::json(id(EVENTS), "$metadata", br#"{"$maxCount":2000}"#);
            store.append("$$cart-7", ExpectedVersion::Any, &[metadata]).expect("metadata");
        }
        let mut rates: Vec<(f64, f64)> = (0..ROUNDS)
            .map(|_| {
                let stream = store.read("plain", Revision::START, Direction::Forwards);
                let view = |direction| {
                    store.read_view("$ce-cart", Revision::START, direction, Position::END)
                };
                (read_rate(stream), read_rate(view(Direction::Forwards)))
            })
            .collect();
        rates.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let (stream, view) = rates[ROUNDS / 2];
        println!(
            "{streams} streams, metadata {has_metadata}: stream {stream:.0} k/s, view {view:.0} \
             k/s, {:.2} of it",
            view / stream
        );
        assert!(view / stream >= 0.5, "views are read too slowly");
    }
}

#[test]
#[ignore = "takes a minute; needs a release build and an idle machine"]
fn view_bytes_per_event() {
    const MOST: u64 = 10_000_000;
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path().join("events"), StoreOptions::default());
    let store = store.expect("a store");
    let (clock, begun) = begin();
    let mut held = 0;
    for first in (0..MOST).step_by(10) {
        // Half of them in one category.
        let stream = match first / 10 % 2 {
            0 => format!("cart-{}", first / 20 % 100_000),
            _ => format!("c{}-{}", first / 20 % 500, first / 20 % 100_000),
        };
        let events: Vec<_> = (first..first + 10)
            .map(|number| NewEvent::binary(id(number), "Happened", b"{}"))
            .collect();
        store.append(&stream, ExpectedVersion::Any, &events).expect("appended");
        if first % 10_000 == 0 {
            held = held.max(store.stats().expect("stats").unflushed_view_bytes);
        }
    }
    let elapsed = clock.now() - begun;
    store.flush().expect("flushed");
    let stats = store.stats().expect("stats");
    let count = store.views(ViewKind::Category, "cart", None, 1).expect("listed");
    assert_eq!(count, [("cart".to_string(), MOST / 2)]);
    println!("{:.0} k/s, at most {held} bytes held in memory", rate(MOST, elapsed));
    for keyspace in &stats.index.keyspaces {
        let bytes: u64 = keyspace.levels.iter().map(|level| level.bytes).sum();
        println!("{}: {bytes} bytes of tables", keyspace.name);
    }
}

#[test]
#[ignore = "takes a minute; needs a release build and an idle machine"]
fn append_rate_with_views() {
    let kinds = ["Opened", "Filled", "Paid", "Sent", "Closed"];
    for (name, streams) in [("new streams", 2_000_000), ("10,000 streams", 10_000)] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path().join("events"), StoreOptions::default());
        let store = store.expect("a store");
        let (clock, begun) = begin();
        for number in 0..2_000_000_u64 {
            let stream = format!("cart-{}", number % streams);
            let kind = kinds[number as usize % kinds.len()];
            let event = NewEvent { kind, ..NewEvent::binary(id(number), "", b"{\"a\":1}") };
            store.append(&stream, ExpectedVersion::Any, &[event]).expect("appended");
        }
        println!("{name}: {:.1} k/s", rate(2_000_000, clock.now() - begun));
    }
}
