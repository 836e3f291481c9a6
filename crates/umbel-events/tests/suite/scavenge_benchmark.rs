//! Benchmark of the cost of a scavenge for concurrent writers, and of reads after it.

use std::sync::LazyLock;
use std::time::Duration;

use umbel_env::Env;
use umbel_events::{
    Direction, ExpectedVersion, NewEvent, Position, ScavengeOptions, Store, StoreOptions,
};

use super::support::id;

const STREAMS: u64 = 20_000;
const EVENTS: u64 = 60;
const BYTES: usize = 300;

/// One environment for all stores, because each environment has its own clock.
static ENV: LazyLock<Env> = LazyLock::new(Env::system);

fn now() -> Duration {
    ENV.clock.now()
}

fn append_for(store: &Store, next: &mut u64, timeout: Duration, until: impl Fn() -> bool) -> f64 {
    let data = vec![b'x'; BYTES];
    let (started, from) = (now(), *next);
    while (now() - started) < timeout && !until() {
        for _ in 0..64 {
            let event = NewEvent::binary(id(*next), "Happened", &data);
            let stream = format!("live-{}", *next % 1000);
            store.append(&stream, ExpectedVersion::Any, &[event]).expect("appended");
            *next += 1;
        }
    }
    (*next - from) as f64 / (now() - started).as_secs_f64()
}

/// Appends to streams whose events are interleaved.
fn fill(store: &Store) {
    let data = vec![b'x'; BYTES];
    let mut number = 1 << 40;
    for round in 0..EVENTS / 20 {
        for stream in 0..STREAMS {
            let ids: Vec<_> = (number..number + 20).map(id).collect();
            number += 20;
            let events: Vec<_> =
                ids.iter().map(|id| NewEvent::binary(*id, "Happened", &data)).collect();
            let expected =
                if round == 0 { ExpectedVersion::NoStream } else { ExpectedVersion::Any };
            store.append(&format!("order-{stream}"), expected, &events).expect("appended");
        }
    }
}

fn read_rate(store: &Store) -> (u64, f64) {
    let started = now();
    let mut read = 0;
    for event in store.read_all(Position::START, Direction::Forwards) {
        event.expect("readable");
        read += 1;
    }
    (read, read as f64 / (now() - started).as_secs_f64())
}

#[test]
#[ignore = "takes minutes and measures; run it alone"]
fn appends_keep_half_their_rate_during_scavenge() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open(folder.path().join("events"), StoreOptions::default()).expect("new");
    fill(&store);
    let (read, rate) = read_rate(&store);
    println!("{read} events read at {rate:.0} a second before");
    for stream in (0..STREAMS).filter(|stream| stream % 10 > 0) {
        store.delete(&format!("order-{stream}"), ExpectedVersion::Any).expect("deleted");
    }
    let mut next = 0;
    append_for(&store, &mut next, Duration::from_secs(2), || false);
    let before = store.stats().expect("stats").log_bytes;
    let mut alone = Vec::new();
    let mut together = Vec::new();
    alone.push(append_for(&store, &mut next, Duration::from_secs(3), || false));
    let started = now();
    let running = store.start_scavenge(&ScavengeOptions::default()).expect("begun");
    while !running.is_done() {
        let timeout = Duration::from_secs(3);
        together.push(append_for(&store, &mut next, timeout, || running.is_done()));
    }
    let report = running.wait().expect("scavenged");
    let seconds = (now() - started).as_secs_f64();
    alone.push(append_for(&store, &mut next, Duration::from_secs(3), || false));
    println!("alone {alone:.0?}, together {together:.0?}; {report:?} in {seconds:.1} s");
    let deleted = STREAMS * 9 / 10 * EVENTS * (BYTES as u64 + 100);
    println!("{} of {deleted} deleted bytes of {before} given back", report.bytes_freed);
    let (read, rate) = read_rate(&store);
    println!("{read} events read at {rate:.0} a second after");
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(mean(&together) >= mean(&alone) / 2.0, "{alone:?} alone, {together:?} together");
}

#[test]
#[ignore = "takes minutes and measures; run it alone"]
fn scavenged_chunks_are_read_at_least_half_as_fast() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("events");
    let store = Store::open(&path, StoreOptions::default()).expect("new");
    fill(&store);
    let before = [read_rate(&store), read_rate(&store)];
    for stream in (0..STREAMS).filter(|stream| stream % 10 == 0) {
        store.delete(&format!("order-{stream}"), ExpectedVersion::Any).expect("deleted");
    }
    store.close().expect("closed");
    let store = Store::open(&path, StoreOptions::default()).expect("opened");
    let options = ScavengeOptions { busy_percent: 100, retry_bytes: 0, ..Default::default() };
    let report = store.scavenge(&options).expect("scavenged");
    let after = [read_rate(&store), read_rate(&store)];
    println!("{before:.0?} before, {after:.0?} after {report:?}");
    assert!(after[1].1 >= before[1].1 / 2.0);
}
