//! Choice between views and scans in filtered reads, and the progress that readers report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use umbel_events::{
    Direction, Error, EventFilter, ExpectedVersion, FilterStrategy, FilteredItem, NewEvent,
    Position, RecordedEvent, Source, Store, StoreOptions, SubscriptionStart,
};
use umbel_sim::Sim;

use super::file_system_hooks::{FileCall, with_hook};
use super::scavenge;
use super::support::{id, options, store};

/// A store with 4,800 events of half a kilobyte: one of a hundred has the type `Rare` and is in the
/// stream `rare-1`.
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
        store.append(stream, ExpectedVersion::Any, &[event]).expect("appended");
    }
}

/// The strategy that finds the first matching event, and the number of events examined for it.
fn first(store: &Store, direction: Direction, filter: &Arc<EventFilter>) -> (FilterStrategy, u64) {
    let from = match direction {
        Direction::Forwards => Position::START,
        Direction::Backwards => Position::END,
    };
    let mut reader = store.read_filtered(from, direction, Arc::clone(filter));
    assert_eq!(reader.strategy(), None);
    loop {
        match reader.next_within(10_000).expect("readable") {
            FilteredItem::Event(_) => {
                return (reader.strategy().expect("chosen"), reader.examined());
            }
            FilteredItem::Examined(_) => {}
            FilteredItem::End(_) => panic!("{filter:?} finds no event"),
        }
    }
}

#[test]
fn views_are_read_only_for_selective_filters() {
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
            assert_eq!(found, (FilterStrategy::Views, 1), "{filter:?} {direction:?}");
        }
    }
    let others = [
        EventFilter::type_prefixes(&["Common"]),
        EventFilter::stream_prefixes(&["common-"]),
        EventFilter::stream_prefixes(&["rare"]),
        EventFilter::stream_regex("rare"),
    ];
    for filter in others.map(|filter| filter.expect("good")) {
        let (strategy, _) = first(&store, Direction::Forwards, &filter);
        assert_eq!(strategy, FilterStrategy::Scan, "{filter:?}");
    }
    let many = large(600);
    let filter = EventFilter::type_regex("^Ra.e").expect("good");
    let found = first(&many, Direction::Forwards, &filter);
    assert_eq!(found, (FilterStrategy::Scan, 51), "too many types to read a view for each");
    for filter in [EventFilter::type_regex("^Rare"), EventFilter::type_prefixes(&["A", "Rare"])] {
        let filter = filter.expect("good");
        assert_eq!(first(&many, Direction::Forwards, &filter), (FilterStrategy::Views, 1));
    }
}

#[test]
fn strategy_uses_the_log_size_after_scavenge() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    fill(&store, 3);
    let rare = EventFilter::type_prefixes(&["Rare"]).expect("good");
    assert_eq!(first(&store, Direction::Forwards, &rare), (FilterStrategy::Views, 1));
    scavenge::set_metadata(&store, "common-1", 9000, r#"{"$maxCount":10}"#);
    // Ends all chunks.
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    assert_eq!(first(&store, Direction::Forwards, &rare), (FilterStrategy::Views, 1));
    store.scavenge(&scavenge::all()).expect("scavenged");
    let (strategy, _) = first(&store, Direction::Forwards, &rare);
    assert_eq!(
        strategy,
        FilterStrategy::Scan,
        "little is left, although positions are as high as before"
    );
}

#[test]
fn subscription_by_views_has_checkpoints_and_new_types() {
    let store = large(3);
    let what = Source::Filtered(EventFilter::type_prefixes(&["Rar"]).expect("good"));
    let mut subscription =
        store.subscribe(what.clone(), SubscriptionStart::Start).expect("subscribed");
    let batch = subscription.try_next_batch(5, 1000).expect("readable");
    assert_eq!((batch.events.len(), batch.examined, batch.is_caught_up), (5, 5, false));
    assert_eq!(batch.checkpoint, batch.events.last().map(|event| Position(event.position)));
    let batch = subscription.try_next_batch(100, 1000).expect("readable");
    assert_eq!((batch.events.len(), batch.is_caught_up), (43, true));
    assert_eq!(
        batch.checkpoint,
        Some(store.visible_position()),
        "what the views passed over counts"
    );
    let place = batch.checkpoint.expect("a place").0;

    // Enough for another plan, with a type that did not exist before.
    let data = vec![b' '; 2000];
    for number in 5000..5600 {
        let kind = ["Common1", "Rarer"][usize::from(number % 100 == 0)];
        let event = NewEvent::binary(id(number), kind, &data);
        store.append("common-1", ExpectedVersion::Any, &[event]).expect("appended");
    }
    let mut again = store.subscribe(what, SubscriptionStart::After(place)).expect("subscribed");
    for subscription in [&mut subscription, &mut again] {
        let batch = subscription.try_next_batch(100, 10_000).expect("readable");
        assert_eq!((batch.events.len(), batch.is_caught_up), (6, true));
        assert!(batch.examined < 600, "{} were scanned", batch.examined);
        assert_eq!(batch.checkpoint, Some(store.visible_position()));
    }
}

#[test]
fn runaway_expression_fails_at_the_matching_type() {
    let store = store();
    let long = "a".repeat(1000);
    for (number, kind) in ["plain", &long, "plain"].into_iter().enumerate() {
        let event = NewEvent::binary(id(number as u64), kind, b"");
        store.append("a", ExpectedVersion::Any, &[event]).expect("appended");
    }
    let filter = EventFilter::type_regex(r"^plain|(a*)*\1b").expect("it compiles");
    // The planner does not evaluate the type twice, but the reader does.
    let mut reader = store.read_filtered(Position::START, Direction::Forwards, filter);
    reader.force_strategy(FilterStrategy::Views);
    assert!(
        matches!(reader.next_within(9), Ok(FilteredItem::Event(event)) if event.kind == "plain")
    );
    for _ in 0..3 {
        let result = reader.next_within(9);
        assert!(
            matches!(&result, Err(Error::RegexTooExpensive { name, .. }) if *name == long),
            "{result:?}"
        );
    }
}

/// The result of a filtered read by views, and its number of reads of the log.
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
    reader.force_strategy(FilterStrategy::Views);
    let (mut events, before) = (Vec::new(), reads.load(Ordering::Relaxed));
    loop {
        match reader.next_within(usize::MAX).expect("readable") {
            FilteredItem::Event(event) => events.push(event),
            FilteredItem::Examined(_) => {}
            FilteredItem::End(_) => return (events, reads.load(Ordering::Relaxed) - before),
        }
    }
}

/// Regression: events of views were read from a slow device one by one, each in the time of a
/// sequential read of 60 KiB. If the events were nearer to each other, a scan of every event took a
/// third of the time.
#[test]
fn near_events_are_scanned_on_a_slow_device() {
    let sim = Sim::new(1);
    let (reads, device) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, is_device, clock) = (Arc::clone(&reads), Arc::clone(&device), sim.clone());
    let env = with_hook(sim.env(), move |moment, path| {
        if let FileCall::Reading(bytes) = moment
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
