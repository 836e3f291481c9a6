//! Damaged files: every read returns correct data, or an error with the place of the damage.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use umbel_events::{
    CopyOptions, Direction, EventFilter, ExpectedVersion, NewEvent, Position, ReadItem,
    RecordedEvent, Result, Revision, ScavengeOptions, Source, Store, SubscriptionStart,
};
use umbel_sim::Sim;

use super::support::{append, id, options};

const STREAMS: [&str; 3] = ["a", "b", "$$a"];

/// A store, closed or not, and its events.
fn specimen(is_closed: bool) -> (Sim, Vec<RecordedEvent>) {
    let sim = Sim::new(5);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append(&store, "a", 0..3);
    append(&store, "b", 3..5);
    let metadata = NewEvent::json(id(5), "$metadata", br#"{"$maxCount":100}"#);
    store.append("$$a", ExpectedVersion::Any, &[metadata]).expect("metadata");
    store.flush().expect("flushed");
    append(&store, "a", 6..8);
    store.sync().expect("synced");
    let events: Result<Vec<_>> = store.read_all(Position::START, Direction::Forwards).collect();
    let events = events.expect("readable");
    match is_closed {
        true => {
            store.close().expect("closed");
            (sim, events)
        }
        false => (sim.kill_image(), events),
    }
}

/// Reads all events, which must match what was written. Returns whether all were read; in a closed
/// store no event is missing without an error.
fn read_all(sim: &Sim, events: &[RecordedEvent], is_closed: bool, what: &str) -> bool {
    let Ok(store) = Store::open("/events", options(sim)) else { return false };
    let mut is_whole = true;
    let mut compare = |wanted: &[&RecordedEvent], read: &mut dyn Iterator<Item = Result<_>>| {
        let mut found = 0;
        for event in read {
            let Ok(event) = event else {
                is_whole = false;
                return;
            };
            assert_eq!(Some(&&event), wanted.get(found), "{what}");
            found += 1;
        }
        assert!(found == wanted.len() || !is_closed, "{found} of {}: {what}", wanted.len());
        is_whole &= found == wanted.len();
    };
    let all: Vec<_> = events.iter().collect();
    compare(&all, &mut store.read_all(Position::START, Direction::Forwards));
    for stream in STREAMS {
        let wanted: Vec<_> = events.iter().filter(|event| event.stream == stream).collect();
        compare(&wanted, &mut store.read(stream, Revision::START, Direction::Forwards));
    }
    is_whole
}

/// Flips a bit of every seventh byte; with `UMBEL_EVERY_BYTE`, of every byte.
#[test]
fn flipped_bits_are_never_read_as_events() {
    let stride = if std::env::var_os("UMBEL_EVERY_BYTE").is_some() { 1 } else { 7 };
    for is_closed in [true, false] {
        let (sim, events) = specimen(is_closed);
        let found = sim.files();
        assert!(found.len() > 4, "{found:?}");
        assert!(read_all(&sim.clone_disk(), &events, is_closed, "undamaged"));
        let mut noticed = 0;
        for path in found {
            let len = sim.read(&path).len() as u64;
            // Preallocated space after the events has no information.
            for offset in (0..len.min(1500)).step_by(stride) {
                let damaged = sim.clone_disk();
                damaged.flip(&path, offset, 1 << (offset % 8));
                let what = format!("{} at {offset}, closed: {is_closed}", path.display());
                noticed += u64::from(!read_all(&damaged, &events, is_closed, &what));
            }
        }
        assert!(noticed > 200, "{noticed} of the flips were noticed");
    }
}

#[test]
fn missing_and_swapped_chunks_and_manifests_are_detected() {
    let sim = Sim::new(6);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let data = vec![1; 9000];
    for number in 0..40 {
        let event = NewEvent::binary(id(number), "Large", &data);
        store.append("a", ExpectedVersion::Any, &[event]).expect("appended");
    }
    assert!(store.stats().expect("stats").chunks > 4);
    store.close().expect("closed");
    let chunk = |number: u64| PathBuf::from(format!("/events/log/{number:08}.chunk"));
    type Harm = Box<dyn Fn(&Sim)>;
    let remove = |path: PathBuf| -> Harm { Box::new(move |sim| sim.remove(&path)) };
    let damages: [(&str, Harm); 4] = [
        ("a missing chunk", remove(chunk(2))),
        ("a missing manifest", remove("/events/CHUNKS".into())),
        ("swapped chunks", Box::new(move |sim| sim.swap_files(chunk(2), chunk(3)))),
        ("a shorter chunk", Box::new(move |sim| sim.truncate(chunk(3), 2000))),
    ];
    for (name, damage_fn) in damages {
        let damaged = sim.clone_disk();
        damage_fn(&damaged);
        let message = match Store::open("/events", options(&damaged)) {
            Err(error) => error.to_string(),
            Ok(store) => {
                let read: Result<Vec<_>> =
                    store.read_all(Position::START, Direction::Forwards).collect();
                read.expect_err(name).to_string()
            }
        };
        assert!(message.contains("corruption in /events/"), "{name}: {message}");
    }
    // Without the index everything is rebuilt.
    let without = sim.clone_disk();
    for path in without.files().iter().filter(|path| path.starts_with("/events/index")) {
        without.remove(path);
    }
    let store = Store::open("/events", options(&without)).expect("opened");
    assert_eq!(store.read("a", Revision::START, Direction::Forwards).count(), 40);
}

/// An open store whose third event, the only one of its stream so far, has a flipped bit on disk.
/// The event is in a chunk that has ended.
fn store_with_damaged_event(seed: u64) -> Store {
    let sim = Sim::new(seed);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let data = vec![1; 2000];
    for number in 0..90 {
        let event = NewEvent::binary(id(number), "T", &data);
        let stream = format!("cart-{}", number % 7);
        store.append(&stream, ExpectedVersion::Any, &[event]).expect("appended");
    }
    let events = store.read_all(Position::START, Direction::Forwards).take(3);
    let damaged = events.last().expect("an event").expect("readable").position;
    store.sync().expect("synced");
    // The first chunk begins at position 0.
    let first = sim.files().into_iter().filter(|path| is_chunk(path)).min();
    sim.flip(first.expect("a chunk"), damaged + 500, 1);
    store
}

/// Story: the damage of one event was reported once for each later event of its category.
#[test]
fn verification_reports_each_damage_once() {
    let damage = store_with_damaged_event(7).verify().expect("verified").damage;
    let texts: BTreeSet<String> = damage.iter().map(ToString::to_string).collect();
    assert_eq!(damage.len(), texts.len(), "{damage:?}");
    // The record in the file, and the event. The views report neither these nor the later events of
    // the chunk, which cannot be found.
    assert!((1..=2).contains(&damage.len()), "{damage:?}");
}

/// Story: only gRPC calls counted damage, so a scavenge, a backup or a consumer group that met
/// damage raised no alarm.
#[test]
fn every_operation_that_meets_damage_counts_it_once() {
    let store = store_with_damaged_event(8);
    let count = || store.stats().expect("stats").damage_errors;
    let read = |source: Source| -> Result<()> {
        let (from, through) = (0, Position::END);
        let mut reader = store.read_source(&source, from, Direction::Forwards, through);
        loop {
            match reader.next_within(usize::MAX)? {
                ReadItem::End => return Ok(()),
                ReadItem::Event(_) | ReadItem::Skipped => {}
            }
        }
    };
    let subscribe = |source: Source| -> Result<()> {
        let mut subscription = store.subscribe(source, SubscriptionStart::Start)?;
        while !subscription.try_next_batch(100, 100)?.is_caught_up {}
        Ok(())
    };
    let filter = EventFilter::type_regex("^T$").expect("a filter");
    let sources =
        [Source::All, Source::named("cart-2"), Source::named("$ce-cart"), Source::Filtered(filter)];
    let mut before = count();
    assert_eq!(before, 0, "nothing has met the damage");
    let mut check = |what: &str, outcome: Result<()>| {
        let error = outcome.expect_err(what).to_string();
        assert!(error.contains("corruption in"), "{what}: {error}");
        assert_eq!(count(), before + 1, "{what}");
        before += 1;
    };
    for source in sources {
        check("a read", read(source.clone()));
        check("a subscription", subscribe(source));
    }
    check("a scavenge", store.scavenge(&ScavengeOptions::default()).map(drop));
    let scavenge = store.start_scavenge(&ScavengeOptions::default()).expect("started");
    check("a scavenge on its thread", scavenge.wait().map(drop));
    check("a backup", store.backup("/backup", CopyOptions::default()).map(drop));
    let undamaged = store.read("cart-1", Revision::START, Direction::Forwards).next();
    undamaged.expect("an event").expect("readable");
    let event = NewEvent::binary(id(1000), "T", &[]);
    let refused = store.append("cart-1", ExpectedVersion::NoStream, &[event]);
    assert!(refused.is_err() && count() == before, "other errors are no damage");
}

fn is_chunk(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "chunk")
}
