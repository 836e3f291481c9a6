//! Benchmark of filtered reads by views and by scans, for a manual run in a release build on an
//! idle machine.

use std::sync::{Arc, LazyLock};

use umbel_env::Env;
use umbel_events::{
    Direction, EventFilter, ExpectedVersion, FilterStrategy, FilteredItem, NewEvent, Position,
    Store, StoreOptions,
};

use super::support::id;

const ROUNDS: usize = 5;
/// A type with the share N has one of N events.
const SHARES: [u64; 6] = [1000, 100, 40, 20, 10, 5];

/// One environment for all stores, because each environment has its own clock.
static ENV: LazyLock<Env> = LazyLock::new(Env::system);

/// A store whose events have the types `Each` plus a share: each type gets one of that many events.
fn filled(events: u64, bytes: usize) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path().join("events"), StoreOptions::default());
    let store = store.expect("a store");
    let data = vec![b'x'; bytes];
    let kinds = SHARES.map(|share| format!("Each{share}."));
    for first in (0..events).step_by(10) {
        let events: Vec<_> = (first..first + 10)
            .map(|number| {
                // Each share has its own turn.
                let turns = SHARES.iter().enumerate();
                let mut due = turns.filter(|(at, share)| number % **share == *at as u64 % **share);
                let kind = due.next().map_or("Other", |(at, _)| kinds[at].as_str());
                NewEvent::binary(id(number), kind, &data)
            })
            .collect();
        let stream = format!("cart-{}", first / 10 % 10_000);
        store.append(&stream, ExpectedVersion::Any, &events).expect("appended");
    }
    store.flush().expect("flushed");
    (folder, store)
}

/// Reads all matching events. Returns the number of events and the duration in milliseconds.
fn read(
    store: &Store,
    direction: Direction,
    filter: &Arc<EventFilter>,
    strategy: Option<FilterStrategy>,
) -> (u64, f64) {
    let from = match direction {
        Direction::Forwards => Position::START,
        Direction::Backwards => Position::END,
    };
    let begun = ENV.clock.now();
    let mut reader = store.read_filtered(from, direction, Arc::clone(filter));
    if let Some(strategy) = strategy {
        reader.force_strategy(strategy);
    }
    let mut found = 0;
    loop {
        match reader.next_within(usize::MAX).expect("readable") {
            FilteredItem::Event(_) => found += 1,
            FilteredItem::Examined(_) => {}
            FilteredItem::End(_) => return (found, (ENV.clock.now() - begun).as_secs_f64() * 1e3),
        }
    }
}

fn median(mut elapsed: Vec<f64>) -> f64 {
    elapsed.sort_by(f64::total_cmp);
    elapsed[elapsed.len() / 2]
}

#[test]
#[ignore = "takes a minute; needs a release build and an idle machine"]
fn rare_type_is_read_twenty_times_faster_by_view() {
    for (events, bytes) in [(1_000_000, 100), (200_000, 1000)] {
        let (_folder, store) = filled(events, bytes);
        let per_event = store.stats().expect("stats").log_bytes / events;
        let forwards = SHARES.map(|share| (Direction::Forwards, share));
        for (direction, share) in forwards.into_iter().chain([(Direction::Backwards, 1000)]) {
            let filter = EventFilter::type_prefixes(&[format!("Each{share}.")]).expect("good");
            let mut elapsed: [Vec<f64>; 3] = Default::default();
            for _ in 0..ROUNDS {
                let strategies = [Some(FilterStrategy::Scan), Some(FilterStrategy::Views), None];
                let found = std::array::from_fn::<_, 3, _>(|at| {
                    let (found, millis) = read(&store, direction, &filter, strategies[at]);
                    elapsed[at].push(millis);
                    found
                });
                assert!(found[0] > 0 && found.iter().all(|count| *count == found[0]));
            }
            let [scan, views, chosen] = elapsed.map(median);
            println!(
                "{per_event} bytes each, one of {share}, {direction:?}: scan {scan:.1} ms, views \
                 {views:.2} ms ({:.1} x), chosen {chosen:.2} ms",
                scan / views
            );
            let uses_views = share == 1000;
            assert!(!uses_views || scan / chosen >= 20.0, "{:.1} times", scan / chosen);
        }
    }
}

/// Drops the page cache, which only root may do.
fn empty_page_cache() {
    let command = "sync && echo 3 > /proc/sys/vm/drop_caches";
    let status = std::process::Command::new("sh").args(["-c", command]).status();
    assert!(status.is_ok_and(|status| status.success()), "the page cache could not be emptied");
}

#[test]
#[ignore = "takes minutes, needs root and a real disk, and measures only in a release build"]
fn filtered_reads_with_cold_page_cache() {
    for (events, bytes) in [(1_000_000, 100), (200_000, 1000)] {
        let (folder, store) = filled(events, bytes);
        let per_event = store.stats().expect("stats").log_bytes / events;
        store.close().expect("closed");
        for share in SHARES {
            let filter = EventFilter::type_prefixes(&[format!("Each{share}.")]).expect("good");
            let mut elapsed: [Vec<f64>; 3] = Default::default();
            for _ in 0..ROUNDS {
                for (at, strategy) in
                    [Some(FilterStrategy::Scan), Some(FilterStrategy::Views), None]
                        .into_iter()
                        .enumerate()
                {
                    let path = folder.path().join("events");
                    let store = Store::open(path, StoreOptions::default()).expect("opened");
                    empty_page_cache();
                    elapsed[at].push(read(&store, Direction::Forwards, &filter, strategy).1);
                }
            }
            let [scan, views, chosen] = elapsed.map(median);
            println!(
                "{per_event} bytes each, one of {share}, cold: scan {scan:.1} ms, views \
                 {views:.2} ms ({:.1} x), chosen {chosen:.2} ms",
                scan / views
            );
        }
    }
}
