//! Scavenges that are killed, or meet a power cut, a full disk or damaged files.

use umbel_events::{Durability, Error, RecordedEvent, Store, StoreOptions, StreamState};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use super::scavenge::{all, append_each, everything, specimen, streams};
use super::support::options;

type StreamContents = Vec<(String, StreamState, Vec<RecordedEvent>)>;

/// A closed store to scavenge; the contents of its streams; and all events before and after.
struct ScavengeFixture {
    sim: Sim,
    contents: StreamContents,
    all: Vec<RecordedEvent>,
    left: Vec<RecordedEvent>,
    /// Length of the store's log after the scavenge.
    bytes: u64,
}

fn before(durability: Durability) -> ScavengeFixture {
    let sim = Sim::new(7);
    let store = specimen(&sim, durability);
    let (named, events) = (streams(&store), everything(&store));
    store.close().expect("closed");
    let done = sim.clone_disk();
    let store = Store::open("/events", options(&done)).expect("opened");
    store.scavenge(&all()).expect("scavenged");
    let bytes = store.stats().expect("stats").log_bytes;
    ScavengeFixture { sim, contents: named, all: events, left: everything(&store), bytes }
}

/// Checks that the remaining events are in order, that all required events exist, and that streams
/// have the same contents.
fn check(before: &ScavengeFixture, store: &Store, what: &str) {
    let found = everything(store);
    let mut all = before.all.iter();
    for event in &found {
        assert!(all.any(|wanted| wanted == event), "{what}: {event:?}");
    }
    let mut found = found.iter();
    for event in &before.left {
        assert!(found.any(|found| found == event), "{what}: {event:?} is missing");
    }
    assert_eq!(streams(store), before.contents, "{what}");
    let report = store.verify().expect("verified");
    assert!(report.damage.is_empty(), "{what}: {:?}", report.damage);
}

/// Checks that another scavenge finishes the work, and leaves no orphan.
fn finish(before: &ScavengeFixture, sim: &Sim, settings: StoreOptions, what: &str) {
    let store = Store::open("/events", settings).unwrap_or_else(|e| panic!("{what}: {e}"));
    check(before, &store, what);
    store.scavenge(&all()).unwrap_or_else(|error| panic!("{what}: {error}"));
    check(before, &store, what);
    assert_eq!(everything(&store), before.left, "{what}");
    let stats = store.stats().expect("stats");
    // A store that was not closed has chunks of its own.
    assert!(stats.log_bytes <= before.bytes + 4096, "{what}: {} bytes", stats.log_bytes);
    let files = sim.files();
    let chunks = files.iter().filter(|path| path.starts_with("/events/log"));
    assert!(chunks.count() <= stats.chunks + 1, "{what}: {files:?}");
    store.close().expect("closed");
}

#[test]
fn scavenge_killed_at_any_call_completes_on_retry() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let before = before(durability);
        let settings = |sim: &Sim| StoreOptions { durability, ..options(sim) };
        let calls = {
            let sim = before.sim.clone_disk();
            let store = Store::open("/events", settings(&sim)).expect("opened");
            let begun = sim.calls();
            store.scavenge(&all()).expect("scavenged");
            sim.calls() - begun
        };
        // With both durabilities, each call killed before and after it, more than 200 points.
        assert!(calls > 60, "{calls}");
        for (call, when) in
            (1..=calls).flat_map(|c| [(c, CrashSide::Before), (c, CrashSide::After)])
        {
            let sim = before.sim.clone_disk();
            let store = Store::open("/events", settings(&sim)).expect("opened");
            sim.crash_at(sim.calls() + call, when);
            let scavenged = store.scavenge(&all());
            assert!(sim.is_dead() || scavenged.is_ok(), "{scavenged:?}");
            drop(store);
            let image = match call % 3 {
                0 => sim.kill_image(),
                _ => sim.crash_image(&Survival::any(call, sim.pending_units()), call),
            };
            finish(&before, &image, settings(&image), &format!("call {call}, {durability:?}"));
        }
    }
}

/// Omits calls that an implementation could forget: after each omission a power cut removes
/// something that was needed.
#[test]
fn omitted_calls_fail_the_scavenge_oracle() {
    let before = before(Durability::Buffered);
    for pattern in ["sync *-*.chunk", "sync CHUNKS.new", "sync_dir directory"] {
        let notices = |call: &u64| {
            let attempt = || {
                let sim = before.sim.clone_disk();
                let store = Store::open("/events", options(&sim)).expect("opened");
                sim.ignore_calls(pattern);
                sim.crash_at(sim.calls() + call, CrashSide::Before);
                let _ = store.scavenge(&all());
                drop(store);
                let image = sim.crash_image(&Survival::any(*call, sim.pending_units()), *call);
                finish(&before, &image, options(&image), pattern);
            };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)).is_err()
        };
        assert!((1..300).any(|call| notices(&call)), "{pattern}: not detected");
    }
}

#[test]
fn disk_full_fails_the_scavenge_without_loss() {
    let before = before(Durability::Buffered);
    let mut refused = 0;
    for kilobytes in (0..160).step_by(4) {
        let sim = before.sim.clone_disk();
        let store = Store::open("/events", options(&sim)).expect("opened");
        let held: u64 = sim.files().iter().map(|path| sim.read(path).len() as u64).sum();
        sim.set_capacity(held + (kilobytes << 10));
        let what = format!("{kilobytes} KiB free");
        if let Err(error) = store.scavenge(&all()) {
            let is_full = matches!(error, Error::Store(umbel::Error::DiskFull { .. }));
            assert!(is_full, "{what}: {error}");
            refused += 1;
            check(&before, &store, &what);
        }
        sim.clear_capacity();
        // In the same process, if it can continue.
        if store.scavenge(&all()).is_ok() {
            check(&before, &store, &what);
            assert_eq!(everything(&store), before.left);
            append_each(&store, "cart-more", 900..901, 10);
        }
        drop(store);
        let store = Store::open("/events", options(&sim)).expect("opened again");
        store.scavenge(&all()).expect("scavenged");
        let left = everything(&store);
        assert_eq!(left[..before.left.len()], before.left, "{what}");
        assert!(store.verify().expect("verified").damage.is_empty(), "{what}");
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn failed_write_is_reported_and_the_next_scavenge_succeeds() {
    let before = before(Durability::Buffered);
    for site in ["sync *-*.chunk", "write *-*.chunk", "create *-*.chunk", "rename CHUNKS.new"] {
        for nth in 1..3 {
            let sim = before.sim.clone_disk();
            let store = Store::open("/events", options(&sim)).expect("opened");
            sim.fail_site(site, nth, Fault { kind: FaultKind::Eio, sticky: false });
            let what = format!("{site}, {nth}");
            let first = store.scavenge(&all());
            check(&before, &store, &what);
            if sim.faults_fired() > 0 {
                first.expect_err(&what);
            }
            drop(store);
            finish(&before, &sim, options(&sim), &what);
        }
    }
}

#[test]
fn flipped_bits_of_a_scavenged_chunk_are_never_read_as_events() {
    let before = before(Durability::Buffered);
    let store = Store::open("/events", options(&before.sim)).expect("opened");
    store.scavenge(&all()).expect("scavenged");
    store.close().expect("closed");
    let files = before.sim.files();
    let scavenged: Vec<_> =
        files.iter().filter(|path| path.to_string_lossy().contains("-000001.chunk")).collect();
    assert!(scavenged.len() > 2, "{files:?}");
    let (mut read, mut verified) = (0, 0);
    let mut flips = 0;
    for path in scavenged {
        let len = before.sim.read(path).len() as u64;
        for offset in (0..64).chain((64..len).step_by(199)).chain(len.saturating_sub(60)..len) {
            let damaged = before.sim.clone_disk();
            damaged.flip(path, offset, 1 << (offset % 8));
            flips += 1;
            let Ok(store) = Store::open("/events", options(&damaged)) else {
                (read, verified) = (read + 1, verified + 1);
                continue;
            };
            let events =
                store.read_all(umbel_events::Position::START, umbel_events::Direction::Forwards);
            let events: Result<Vec<_>, _> = events.collect();
            match events {
                Ok(events) => assert_eq!(events, before.left, "{path:?} at {offset}"),
                Err(_) => read += 1,
            }
            let noticed = store.verify().map_or(true, |report| !report.damage.is_empty());
            verified += u64::from(noticed);
            assert!(noticed, "{path:?} at {offset}");
        }
    }
    assert!(flips > 300 && read > 150 && verified == flips, "{flips}: {read}, {verified}");
}
