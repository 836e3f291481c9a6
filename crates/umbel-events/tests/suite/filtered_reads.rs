//! Filtered reads return what a full read returns, without the events that do not match. A read
//! that resumes at a reported position misses no event.

use std::sync::Arc;

use umbel_events::{
    Direction, Error, EventFilter, ExpectedVersion, FilteredItem, NewEvent, Position,
    RecordedEvent, Store,
};
use umbel_sim::Sim;

use super::support::{append, id, options, store};

/// A store with events of several types in several streams and chunks.
fn mixed() -> Store {
    let store = store();
    let data = vec![b' '; 700];
    for number in 0..600 {
        let stream = ["cart-1", "cart-2", "order-1", "$system"][number as usize % 4];
        let kind = ["Opened", "Added", "Closed"][number as usize % 3];
        let event = NewEvent::json(id(number), kind, &data);
        store.append(stream, ExpectedVersion::Any, &[event]).expect("appended");
    }
    assert!(store.stats().expect("stats").chunks > 3, "several chunks");
    store
}

fn all(store: &Store, from: u64, direction: Direction) -> Vec<RecordedEvent> {
    store.read_all(Position(from), direction).map(|event| event.expect("readable")).collect()
}

/// Reads to the end, with this many examined events per step; checks every reported position.
fn filtered(
    store: &Store,
    from: u64,
    direction: Direction,
    filter: &Arc<EventFilter>,
    limit: usize,
) -> Vec<RecordedEvent> {
    let mut reader = store.read_filtered(Position(from), direction, Arc::clone(filter));
    let mut found = Vec::new();
    loop {
        match reader.next_within(limit).expect("readable") {
            FilteredItem::Event(event) => found.push(event),
            FilteredItem::Examined(at) => {
                let known = all(store, 0, Direction::Forwards);
                assert!(known.iter().any(|event| event.position == at.0), "{at:?} is an event");
                assert!(at <= store.visible_position());
            }
            FilteredItem::End(at) => {
                assert!(at <= store.visible_position());
                return found;
            }
        }
    }
}

#[test]
fn filtered_read_matches_model_in_both_directions() {
    let store = mixed();
    let positions: Vec<u64> =
        all(&store, 0, Direction::Forwards).iter().map(|event| event.position).collect();
    let filters = [
        EventFilter::stream_prefixes(&["cart-", "$"]),
        EventFilter::type_prefixes(&["Opened"]),
        EventFilter::stream_regex("^order-"),
        EventFilter::stream_regex(r"(?<=cart-)1$"),
        EventFilter::type_regex("^(?!Added)"),
        EventFilter::type_prefixes(&["Nothing"]),
    ];
    for filter in filters {
        let filter = filter.expect("a good filter");
        for (from, limit) in [
            (0, 1),
            (0, 100_000),
            (positions[7], 7),
            (positions[7] + 8, 7),
            (positions[599], 3),
            (positions[599] + 1, 3),
            (u64::MAX, 50),
        ] {
            for direction in [Direction::Forwards, Direction::Backwards] {
                let passes = |event: &RecordedEvent| {
                    filter.passes(&event.stream, &event.kind).expect("in time")
                };
                let wanted: Vec<_> =
                    all(&store, from, direction).into_iter().filter(passes).collect();
                let found = filtered(&store, from, direction, &filter, limit);
                assert_eq!(found, wanted, "{filter:?} from {from} {direction:?} by {limit}");
            }
        }
    }
}

#[test]
fn read_resumes_from_the_reported_position() {
    let store = mixed();
    let nothing = EventFilter::type_prefixes(&["Nothing"]).expect("good");
    let positions: Vec<u64> =
        all(&store, 0, Direction::Forwards).iter().map(|event| event.position).collect();
    let mut reader = store.read_filtered(Position::START, Direction::Forwards, nothing);
    for examined in [10, 20, 30] {
        let step = reader.next_within(10).expect("readable");
        assert_eq!(step, FilteredItem::Examined(Position(positions[examined - 1])));
        assert_eq!(reader.examined(), examined as u64);
    }
    let end = loop {
        match reader.next_within(1000).expect("readable") {
            FilteredItem::Examined(_) => {}
            step => break step,
        }
    };
    assert_eq!(end, FilteredItem::End(store.visible_position()));
    append(&store, "late", 1000..1002);
    let step = reader.next_within(1).expect("readable");
    assert!(matches!(step, FilteredItem::Examined(at) if at.0 > positions[599]), "{step:?}");
    assert!(matches!(reader.next_within(1), Ok(FilteredItem::Examined(_))));
    assert_eq!(
        reader.next_within(1).expect("readable"),
        FilteredItem::End(store.visible_position())
    );

    let empty = super::support::store();
    let any = EventFilter::type_regex("^").expect("good");
    for direction in [Direction::Forwards, Direction::Backwards] {
        let mut reader = empty.read_filtered(Position::START, direction, Arc::clone(&any));
        assert_eq!(reader.next_within(0).expect("readable"), FilteredItem::End(Position(0)));
    }
}

#[test]
fn runaway_expression_fails_each_read_of_the_name() {
    let store = store();
    let long = "a".repeat(1000);
    append(&store, "before", 0..1);
    append(&store, &long, 1..2);
    append(&store, "behind", 2..3);
    let filter = EventFilter::stream_regex(r"(a*)*\1b").expect("it compiles");
    let mut reader = store.read_filtered(Position::START, Direction::Forwards, filter);
    let mut errors = 0;
    for _ in 0..4 {
        match reader.next_within(1) {
            Err(Error::RegexTooExpensive { name, expression }) => {
                assert_eq!((name, expression.as_str()), (long.clone(), r"(a*)*\1b"));
                errors += 1;
            }
            Ok(FilteredItem::Event(event)) => assert_eq!(event.stream, "before"),
            other => {
                assert!(errors == 0 && matches!(other, Ok(FilteredItem::Examined(_))), "{other:?}")
            }
        }
    }
    assert!(errors >= 2);
}

#[test]
fn close_ends_a_filtered_read() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append(&store, "a", 0..2);
    let any = EventFilter::type_regex("^").expect("good");
    let mut reader = store.read_filtered(Position::START, Direction::Forwards, any);
    assert!(matches!(reader.next_within(1), Ok(FilteredItem::Event(_))));
    store.close().expect("closed");
    assert!(reader.next_within(1).is_err());
}
