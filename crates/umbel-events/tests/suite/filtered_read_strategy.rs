//! When a filtered read takes events out of views, and what it tells on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use umbel_events::{
    Direction, Error, EventFilter, Expected, FilterWay, NewEvent, Position, RecordedEvent, Since,
    Step, Store, StoreOptions, Subscribed,
};
use umbel_sim::Sim;

use super::hooks::{Moment, hooked};
use super::scavenging;
use super::support::{id, options, store};

/// A store with 4,800 events of half a kilobyte: one of a hundred is `Rare`, and in `rare-1`.
fn large(kinds: u64) -> Store {
    let store = store();
    fill(&store, kinds);
    store
}

fn fill(store: &Store, kinds: u64) {
    let data = vec![b' '; 400];
    for number in 0..4800 {
        let is_rare = number % 100 == 50;
        let kind = if is_rare { "Rare".to_string() } else { format!("Common{}", number % kinds) };
        let stream = if is_rare { "rare-1" } else { "common-1" };
        let event = NewEvent::binary(id(number), &kind, &data);
        store.append(stream, Expected::Any, &[event]).expect("appended");
    }
}

/// How the first event that passes is found, and how many were looked at for it.
fn first(store: &Store, direction: Direction, filter: &Arc<EventFilter>) -> (FilterWay, u64) {
    let from = match direction {
        Direction::Forwards => Position::START,
        Direction::Backwards => Position::END,
    };
    let mut reader = store.read_filtered(from, direction, Arc::clone(filter));
    assert_eq!(reader.way(), None);
    loop {
        match reader.next_within(10_000).expect("readable") {
            Step::Event(_) => return (reader.way().expect("chosen"), reader.examined()),
            Step::Examined(_) => {}
            Step::End(_) => panic!("{filter:?} finds nothing"),
        }
    }
}

#[test]
fn views_are_asked_where_few_events_may_pass_and_only_there() {
    let store = large(3);
    let rare = [
        EventFilter::type_prefixes(&["Rare"]),
        EventFilter::type_prefixes(&["Rare", "Never"]),
        EventFilter::type_regex("^Ra.e"),
        EventFilter::type_regex("^(?!Common)"),
        EventFilter::stream_prefixes(&["rare-"]),
        EventFilter::stream_prefixes(&["rare-1", "never-"]),
        EventFilter::stream_regex("^rare-"),
    ];
    for filter in rare.map(|filter| filter.expect("good")) {
        for direction in [Direction::Forwards, Direction::Backwards] {
            let found = first(&store, direction, &filter);
            assert_eq!(found, (FilterWay::Views, 1), "{filter:?} {direction:?}");
        }
    }
    let others = [
        EventFilter::type_prefixes(&["Common"]),
        EventFilter::stream_prefixes(&["common-"]),
        EventFilter::stream_prefixes(&["rare"]),
        EventFilter::stream_regex("rare"),
    ];
    for filter in others.map(|filter| filter.expect("good")) {
        let (way, _) = first(&store, Direction::Forwards, &filter);
        assert_eq!(way, FilterWay::Scan, "{filter:?}");
    }
    let many = large(600);
    let filter = EventFilter::type_regex("^Ra.e").expect("good");
    let found = first(&many, Direction::Forwards, &filter);
    assert_eq!(found, (FilterWay::Scan, 51), "too many types to ask for each");
    for filter in [EventFilter::type_regex("^Rare"), EventFilter::type_prefixes(&["A", "Rare"])] {
        let filter = filter.expect("good");
        assert_eq!(first(&many, Direction::Forwards, &filter), (FilterWay::Views, 1));
    }
}

#[test]
fn a_log_counts_by_what_is_left_of_it() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    fill(&store, 3);
    let rare = EventFilter::type_prefixes(&["Rare"]).expect("good");
    assert_eq!(first(&store, Direction::Forwards, &rare), (FilterWay::Views, 1));
    scavenging::set_metadata(&store, "common-1", 9000, r#"{"$maxCount":10}"#);
    // So that all chunks have ended.
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    assert_eq!(first(&store, Direction::Forwards, &rare), (FilterWay::Views, 1));
    store.scavenge(&scavenging::all()).expect("scavenged");
    let (way, _) = first(&store, Direction::Forwards, &rare);
    assert_eq!(way, FilterWay::Scan, "little is left, although positions are as high as before");
}

#[test]
fn who_subscribes_by_views_has_checkpoints_and_types_that_come_later() {
    let store = large(3);
    let what = Subscribed::Filtered(EventFilter::type_prefixes(&["Rar"]).expect("good"));
    let mut subscription = store.subscribe(what.clone(), Since::Start).expect("subscribed");
    let batch = subscription.take(5, 1000).expect("readable");
    assert_eq!((batch.events.len(), batch.examined, batch.is_caught_up), (5, 5, false));
    assert_eq!(batch.checkpoint, batch.events.last().map(|event| Position(event.position)));
    let batch = subscription.take(100, 1000).expect("readable");
    assert_eq!((batch.events.len(), batch.is_caught_up), (43, true));
    assert_eq!(batch.checkpoint, Some(store.visible()), "what the views passed over counts");
    let place = batch.checkpoint.expect("a place").0;

    // Enough for another choice, with a type that was not there before.
    let data = vec![b' '; 2000];
    for number in 5000..5600 {
        let kind = ["Common1", "Rarer"][usize::from(number % 100 == 0)];
        let event = NewEvent::binary(id(number), kind, &data);
        store.append("common-1", Expected::Any, &[event]).expect("appended");
    }
    let mut again = store.subscribe(what, Since::After(place)).expect("subscribed");
    for subscription in [&mut subscription, &mut again] {
        let batch = subscription.take(100, 10_000).expect("readable");
        assert_eq!((batch.events.len(), batch.is_caught_up), (6, true));
        assert!(batch.examined < 600, "{} were looked at", batch.examined);
        assert_eq!(batch.checkpoint, Some(store.visible()));
    }
}

#[test]
fn a_type_on_which_an_expression_runs_away_is_told_to_who_comes_to_it() {
    let store = store();
    let long = "a".repeat(1000);
    for (number, kind) in ["plain", &long, "plain"].into_iter().enumerate() {
        let event = NewEvent::binary(id(number as u64), kind, b"");
        store.append("a", Expected::Any, &[event]).expect("appended");
    }
    let filter = EventFilter::type_regex(r"^plain|(a*)*\1b").expect("it compiles");
    // The type is not asked about twice by who chooses, but by who reads.
    let mut reader = store.read_filtered(Position::START, Direction::Forwards, filter);
    reader.force(FilterWay::Views);
    assert!(matches!(reader.next_within(9), Ok(Step::Event(event)) if event.kind == "plain"));
    for _ in 0..3 {
        let told = reader.next_within(9);
        assert!(matches!(&told, Err(Error::Runaway { name, .. }) if *name == long), "{told:?}");
    }
}

/// What a filtered read by views finds, and in how many reads of the log.
fn found(
    store: &Store,
    reads: &AtomicU64,
    filter: &Arc<EventFilter>,
    direction: Direction,
) -> (Vec<RecordedEvent>, u64) {
    let from = match direction {
        Direction::Forwards => Position::START,
        Direction::Backwards => Position::END,
    };
    let mut reader = store.read_filtered(from, direction, Arc::clone(filter));
    reader.force(FilterWay::Views);
    let (mut events, before) = (Vec::new(), reads.load(Ordering::Relaxed));
    loop {
        match reader.next_within(usize::MAX).expect("readable") {
            Step::Event(event) => events.push(event),
            Step::Examined(_) => {}
            Step::End(_) => return (events, reads.load(Ordering::Relaxed) - before),
        }
    }
}

/// From a device events of views came one by one, each in the time in which it gives 60 KiB in a
/// row: where they lay nearer, a look at every event took a third of the time.
#[test]
fn events_that_lie_near_are_read_in_a_row_where_single_reads_wait_for_the_device() {
    let sim = Sim::new(1);
    let (reads, device) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, is_device, clock) = (Arc::clone(&reads), Arc::clone(&device), sim.clone());
    let env = hooked(sim.env(), move |moment, path| {
        if let Moment::Reading(bytes) = moment
            && path.extension().is_some_and(|extension| extension == "chunk")
        {
            counted.fetch_add(1, Ordering::Relaxed);
            if is_device.load(Ordering::Relaxed) {
                clock.advance(Duration::from_micros(70 + bytes as u64 / 800));
            }
        }
    });
    let options = StoreOptions { chunk_bytes: 16 << 20, env, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    fill(&store, 3);
    let filter = EventFilter::type_prefixes(&["Rare"]).expect("good");
    for direction in [Direction::Forwards, Direction::Backwards] {
        device.store(false, Ordering::Relaxed);
        let (events, single) = found(&store, &reads, &filter, direction);
        assert_eq!(events.len(), 48);
        assert!(single >= 48, "{single} reads, {direction:?}");
        device.store(true, Ordering::Relaxed);
        let (same, in_a_row) = found(&store, &reads, &filter, direction);
        assert_eq!(same, events);
        assert!(in_a_row <= single / 2, "{in_a_row} reads of {single}, {direction:?}");
    }
}
