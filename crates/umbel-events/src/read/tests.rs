//! Tests of the work of one step of a reader, whatever events are hidden from it.

use std::time::Duration;

use umbel_sim::Sim;

use crate::event_filter::EventFilter;
use crate::event_log::FRAMES_READ;
use crate::read::event_source::Source;
use crate::read::filtered_reader::FilteredItem;
use crate::read::scan_planner::FilterStrategy;
use crate::read::stream_reader::StreamItem;
use crate::scavenge::ScavengeOptions;
use crate::types::event::{Direction, EventId, NewEvent, Position, RecordedEvent, Revision};
use crate::types::expected_version::ExpectedVersion;
use crate::types::store_options::StoreOptions;
use crate::{Error, Store, SubscriptionStart};

/// Number of hidden events.
const HIDDEN: u64 = 3000;
/// Number of events that a step of a reader may examine.
const STEP_EVENTS: usize = 32;
/// Maximum number of frames that a step reads: those of the events, of the search for a place in a
/// rewritten chunk, and of the probes of a binary search.
const STEP_FRAMES_MAX: u64 = 32 * STEP_EVENTS as u64 + 64;

fn options(sim: &Sim) -> StoreOptions {
    StoreOptions {
        background_threads: 0,
        chunk_bytes: 64 << 10,
        memory_bytes: Some(8 << 20),
        env: sim.env(),
        ..StoreOptions::default()
    }
}

fn append(store: &Store, stream: &str, kind: &str, count: u64) {
    let ids: Vec<EventId> = (0..count).map(|_| store.new_id().expect("an id")).collect();
    let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, kind, b"{}")).collect();
    for events in events.chunks(500) {
        store.append(stream, ExpectedVersion::Any, events).expect("appended");
    }
}

fn set_metadata(store: &Store, stream: &str, metadata: &str) {
    let id = store.new_id().expect("an id");
    let event = NewEvent::json(id, "$metadata", metadata.as_bytes());
    store.append(&format!("$${stream}"), ExpectedVersion::Any, &[event]).expect("appended");
}

fn scavenge(store: &Store) {
    store.scavenge(&ScavengeOptions::default()).expect("scavenged");
}

/// Appends more bytes than those of the events whose ids a scavenge keeps.
fn push_out_of_retry_window(store: &Store) {
    for _ in 0..17 {
        let id = store.new_id().expect("an id");
        let event = NewEvent::binary(id, "Other", &[7; 1 << 20]);
        store.append("other", ExpectedVersion::Any, &[event]).expect("appended");
    }
}

const VIEWS: [&str; 3] = ["$ce-hidden", "$et-Hidden", "$streams"];

/// Each class of hidden events, and how it is made of `HIDDEN` events of the type `Hidden` in
/// streams of the category `hidden`.
type Class = (&'static str, fn(&Sim, &Store));
const CLASSES: [Class; 8] = [
    ("expired", |sim, store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        for stream in ["hidden-1"].into_iter().chain(VIEWS) {
            set_metadata(store, stream, r#"{"$maxAge":60}"#);
        }
        sim.advance(Duration::from_secs(1000));
    }),
    ("expired and scavenged", |sim, store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        for stream in ["hidden-1"].into_iter().chain(VIEWS) {
            set_metadata(store, stream, r#"{"$maxAge":60}"#);
        }
        push_out_of_retry_window(store);
        sim.advance(Duration::from_secs(1000));
        scavenge(store);
    }),
    ("truncated", |_, store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        set_metadata(store, "hidden-1", &format!(r#"{{"$tb":{HIDDEN}}}"#));
    }),
    ("counted", |_, store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        set_metadata(store, "hidden-1", r#"{"$maxCount":1}"#);
    }),
    ("deleted streams", |_, store| {
        for number in 0..HIDDEN / 10 {
            let stream = format!("hidden-{number}");
            append(store, &stream, "Hidden", 10);
            match number % 2 {
                0 => store.delete(&stream, ExpectedVersion::Any).expect("deleted"),
                _ => store.tombstone(&stream, ExpectedVersion::Any).expect("deleted"),
            };
        }
    }),
    ("stubs", |_, store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        store.delete("hidden-1", ExpectedVersion::Any).expect("deleted");
        scavenge(store);
    }),
    ("scavenged", |_, store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        push_out_of_retry_window(store);
        store.delete("hidden-1", ExpectedVersion::Any).expect("deleted");
        scavenge(store);
    }),
    ("filtered out", |_, store| append(store, "shown", "Hidden", HIDDEN)),
];

fn sources() -> Vec<Source> {
    let mut sources: Vec<Source> = VIEWS.into_iter().map(Source::named).collect();
    sources.extend(["hidden-1", "hidden-0", "shown"].map(Source::named));
    let filters = [
        EventFilter::type_prefixes(&["Shown"]),
        EventFilter::stream_prefixes(&["hidden-"]),
        EventFilter::type_regex("own$"),
        EventFilter::stream_prefixes(&["$idx-ce-hidden"]),
        EventFilter::stream_prefixes(&["$idx-et-Hidden"]),
    ];
    sources.extend(filters.map(|filter| Source::Filtered(filter.expect("good"))));
    sources.push(Source::All);
    sources
}

/// Runs a step of a reader, and checks how many frames it has read.
fn checked_step<T>(what: &str, step_events: usize, step: impl FnOnce() -> T) -> T {
    let before = FRAMES_READ.get();
    let done = step();
    let frames = FRAMES_READ.get() - before;
    let frames_max = STEP_FRAMES_MAX.max(32 * step_events as u64);
    assert!(frames <= frames_max, "{what}: {frames} frames");
    done
}

/// Reads a source in steps, and returns its events and the number of steps.
fn read_in_steps(
    (store, source): (&Store, &Source),
    direction: Direction,
    step_events: usize,
    what: &str,
) -> (Vec<RecordedEvent>, u64) {
    let from = if direction == Direction::Forwards { 0 } else { u64::MAX };
    let (mut events, mut steps) = (Vec::new(), 0);
    let mut reader = store.read_source(source, from, direction, Position::END);
    loop {
        steps += 1;
        match checked_step(what, step_events, || reader.next_within(step_events)) {
            Ok(StreamItem::Event(event)) => events.push(event),
            Ok(StreamItem::Skipped) => {}
            Ok(StreamItem::End) | Err(Error::StreamDeleted { .. }) => return (events, steps),
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// Story: expired events were skipped one by one, 750,000 of them in 0.9 s, and steps over views
/// and over all events had no limit. Three clients that read such events left others two appends
/// in eight seconds.
#[test]
fn step_of_every_reader_is_bounded_whatever_events_are_hidden() {
    for (class, hide) in CLASSES {
        let sim = Sim::new(7);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        hide(&sim, &store);
        append(&store, "shown", "Shown", 3);
        append(&store, "hidden-1000000", "Shown", 1);
        for source in sources() {
            for direction in [Direction::Forwards, Direction::Backwards] {
                let what = format!("{class}, {source:?}, {direction:?}");
                let (events, steps) =
                    read_in_steps((&store, &source), direction, STEP_EVENTS, &what);
                let skipped = steps - 1 - events.len() as u64;
                assert!(skipped <= 2 * HIDDEN / STEP_EVENTS as u64 + 8, "{what}: {steps} steps");
                if class != "deleted streams" && !source.is_by_position() {
                    assert!(skipped <= 1, "{what}: {steps} steps, without a search");
                }
                let (all, _) = read_in_steps((&store, &source), direction, 1, &what);
                assert_eq!(all, events, "{what}");
            }
            check_subscription(&store, &source, class);
        }
        store.close().expect("closed");
    }
}

/// An index has the events to which the links of its view lead, by a scan and by the view.
#[test]
fn index_agrees_with_the_links_of_its_view() {
    for (class, hide) in CLASSES {
        let sim = Sim::new(8);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        hide(&sim, &store);
        append(&store, "hidden-1000000", "Hidden", 2);
        for (index, view) in [("$idx-ce-hidden", VIEWS[0]), ("$idx-et-Hidden", VIEWS[1])] {
            let links = store.read_view(view, Revision(0), Direction::Forwards, Position::END);
            let wanted: Vec<_> = links.filter_map(|link| link.expect("readable").event).collect();
            assert!(wanted.len() >= 2, "{class}, {index}");
            for strategy in [FilterStrategy::Scan, FilterStrategy::Views] {
                let filter = EventFilter::stream_prefixes(&[index]).expect("an index");
                let mut reader = store.read_filtered(Position(0), Direction::Forwards, filter);
                reader.force_strategy(strategy);
                let mut found = Vec::new();
                loop {
                    match reader.next_within(1 << 20).expect("readable") {
                        FilteredItem::Event(event) => found.push(event),
                        FilteredItem::Examined(_) => {}
                        FilteredItem::End(_) => break,
                    }
                }
                assert_eq!(found, wanted, "{class}, {index}, {strategy:?}");
            }
        }
        store.close().expect("closed");
    }
}

/// Checks that each batch of a subscription is bounded, and that the subscription gets the events
/// that a read gets.
fn check_subscription(store: &Store, source: &Source, class: &str) {
    let what = format!("{class}, subscription to {source:?}");
    let subscribed = store.subscribe(source.clone(), SubscriptionStart::Start);
    let mut subscription = match subscribed {
        Ok(subscription) => subscription,
        Err(error) => panic!("{what}: {error}"),
    };
    let (mut events, mut batches) = (Vec::new(), 0);
    loop {
        let batch = checked_step(&what, STEP_EVENTS, || {
            subscription.try_next_batch(STEP_EVENTS, STEP_EVENTS)
        });
        let batch = match batch {
            Err(Error::StreamDeleted { .. }) => break,
            batch => batch.expect("readable"),
        };
        batches += 1;
        assert!(batches <= 2 * HIDDEN / STEP_EVENTS as u64 + 64, "{what}: not caught up");
        events.extend(batch.events);
        if batch.is_caught_up {
            break;
        }
    }
    let (read, _) = read_in_steps((store, source), Direction::Forwards, 1 << 20, &what);
    assert_eq!(events, read, "{what}");
}

/// The binary search finds the same events as a comparison of each event, with scavenged events
/// anywhere and events of other streams in between.
#[test]
fn search_for_unexpired_events_agrees_with_a_scan() {
    for seed in 0..24 {
        let sim = Sim::new(seed);
        let mut store = Store::open("/events", options(&sim)).expect("a new store");
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let begun = sim.env().clock.wall_micros() / 1_000_000;
        for _ in 0..40 {
            append(&store, &format!("hidden-{}", next(3)), "Hidden", 1 + next(20));
            append(&store, "other", "Other", next(5));
            sim.advance(Duration::from_secs(next(4) * next(30)));
        }
        if seed % 3 == 1 {
            push_out_of_retry_window(&store);
        }
        if seed % 3 > 0 {
            set_metadata(&store, "hidden-1", &format!(r#"{{"$tb":{}}}"#, next(100)));
            set_metadata(&store, "hidden-2", r#"{"$maxCount":7}"#);
            store.close().expect("closed");
            store = Store::open("/events", options(&sim)).expect("opened again");
            scavenge(&store);
            set_metadata(&store, "hidden-1", r#"{"$tb":0}"#);
        }
        let age = sim.env().clock.wall_micros() / 1_000_000 - begun;
        for seconds in [1, age / 4, age / 2, age * 3 / 4, age + 100] {
            let metadata = format!(r#"{{"$maxAge":{}}}"#, seconds.max(1));
            let now = |store: &Store, name: &str| {
                let (all, _) = read_in_steps(
                    (store, &Source::named(name)),
                    Direction::Forwards,
                    1 << 20,
                    "a scan",
                );
                all
            };
            for name in ["hidden-0", "hidden-1", "$ce-hidden", "$et-Hidden"] {
                set_metadata(&store, name, "{}");
                let all = now(&store, name);
                set_metadata(&store, name, &metadata);
                let since = sim.env().clock.wall_micros() * 10 - seconds.max(1) * 10_000_000;
                // Within a second of the limit, the clock decides.
                let is_young = |event: &&RecordedEvent| event.created >= since + 1_000_000;
                let young: Vec<_> = all.iter().filter(is_young).cloned().collect();
                let read = now(&store, name);
                let what = format!("seed {seed}, {name}, {seconds} s");
                assert!(read.ends_with(&young), "{what}");
                assert!(read.iter().all(|event| event.created + 1_000_000 >= since), "{what}");
                let (mut backwards, _) = read_in_steps(
                    (&store, &Source::named(name)),
                    Direction::Backwards,
                    1 << 20,
                    &what,
                );
                backwards.reverse();
                assert_eq!(backwards, read, "{what}");
            }
        }
        store.close().expect("closed");
    }
}
