//! Reading streams and everything, forwards and backwards, and what metadata hides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use umbel_events::{
    Direction, Error, Expected, NewEvent, Position, Revision, Size, Store, StoreOptions,
    StreamState, limits, metadata_stream,
};

use super::hooks::{Moment, hooked};
use super::support::{append, event, id, options, outline, store};
use umbel_sim::Sim;

fn revisions(store: &Store, stream: &str, from: u64, direction: Direction) -> Vec<u64> {
    let read = outline(store.read(stream, Revision(from), direction));
    read.iter().map(|(revision, _)| *revision).collect()
}

#[test]
fn a_stream_is_read_both_ways_from_any_place() {
    let store = store();
    for number in 0..700 {
        append(&store, "a", number..number + 1);
        append(&store, "b", 1000 + number..1001 + number);
    }
    for from in [0, 1, 15, 16, 17, 300, 698, 699, 700, u64::MAX] {
        let forwards: Vec<u64> = (from..700).collect();
        assert_eq!(revisions(&store, "a", from, Direction::Forwards), forwards, "from {from}");
        let backwards: Vec<u64> = (0..=from.min(699)).rev().collect();
        assert_eq!(revisions(&store, "a", from, Direction::Backwards), backwards, "from {from}");
    }
    let read = outline(store.read("b", Revision(698), Direction::Forwards));
    assert_eq!(read, [(698, id(1698)), (699, id(1699))]);
}

#[test]
fn everything_is_read_both_ways_from_any_place() {
    let store = store();
    let large = vec![7; 10_000];
    let mut written = Vec::new();
    for number in 0..40 {
        let events = [event(2 * number), NewEvent::binary(id(2 * number + 1), "Large", &large)];
        let stream = ["a", "b", "c"][number as usize % 3];
        store.append(stream, Expected::Any, &events).expect("appended");
        written.extend([id(2 * number), id(2 * number + 1)]);
    }
    let read: Vec<_> = store
        .read_all(Position::START, Direction::Forwards)
        .map(|event| event.expect("readable"))
        .collect();
    assert!(store.stats().expect("stats").chunks > 3, "several chunks");
    assert_eq!(read.iter().map(|event| event.id).collect::<Vec<_>>(), written);
    assert!(read.windows(2).all(|pair| pair[0].position < pair[1].position));
    let ids = |from: u64, direction| -> Vec<_> {
        store.read_all(Position(from), direction).map(|e| e.expect("readable").id).collect()
    };
    let backwards: Vec<_> = written.iter().rev().copied().collect();
    assert_eq!(ids(u64::MAX, Direction::Backwards), backwards);
    for (index, event) in read.iter().enumerate() {
        assert_eq!(ids(event.position, Direction::Forwards), written[index..]);
        assert_eq!(ids(event.position - 5, Direction::Forwards), written[index..]);
        assert_eq!(ids(event.position, Direction::Backwards), backwards[80 - index..]);
        assert_eq!(ids(event.position + 5, Direction::Backwards), backwards[79 - index..]);
    }
    let mut tail = store.read_all(Position(read[79].position), Direction::Forwards);
    assert!(tail.next().is_some() && tail.next().is_none());
    append(&store, "d", 200..201);
    assert_eq!(tail.next().expect("more").expect("readable").id, id(200));
}

/// Every subscription that goes on asks for the position behind the event it has: once each of them
/// walked through the chunk from its first event to find out where the next one is.
#[test]
fn going_on_behind_an_event_reads_little_however_long_its_chunk_is() {
    let sim = Sim::new(1);
    let wide = StoreOptions { chunk_bytes: 4 << 20, ..options(&sim) };
    let store = Store::open("/events", wide).expect("a new store");
    let large = vec![7; 10_000];
    for number in 0..350 {
        let events = [NewEvent::binary(id(number), "Large", &large)];
        store.append("a", Expected::Any, &events).expect("appended");
    }
    let newest = store.visible().0;
    let mut before = store.read_all(Position(newest), Direction::Backwards);
    let before = before.next().expect("there is one").expect("readable");
    let calls = |from: u64| {
        let calls = sim.calls();
        let mut reader = store.read_all(Position(from), Direction::Forwards);
        assert_eq!(reader.next().expect("there is one").expect("readable").position, newest);
        sim.calls() - calls
    };
    let behind_an_event = calls(before.position + 1);
    assert!(behind_an_event <= 6, "{behind_an_event} calls");
    let between_two = calls(before.position + 100);
    assert!(between_two > 10, "a way of 3 MB costs only {between_two} calls");
    let again = calls(before.position + 100);
    assert!(again <= 8, "the way was walked before, and still costs {again} calls");
    let mut tail = store.read_all(Position(newest + 1), Direction::Forwards);
    assert!(tail.next().is_none());
    append(&store, "b", 500..501);
    assert_eq!(tail.next().expect("more").expect("readable").id, id(500));
}

/// Whoever asked for a place between two events had the chunk walked from its first event each
/// time; marks that the walk leaves shorten the next one, and must not change what is found.
#[test]
fn any_place_between_two_events_leads_to_the_second_in_whatever_order_it_is_asked() {
    let sim = Sim::new(1);
    let wide = StoreOptions { chunk_bytes: 4 << 20, ..options(&sim) };
    let store = Store::open("/events", wide).expect("a new store");
    for number in 0..300u64 {
        // One of them is longer than marks lie apart.
        let data = vec![7; if number == 150 { 2 << 20 } else { 16_000 }];
        let events = [NewEvent::binary(id(number), "Large", &data)];
        store.append("a", Expected::Any, &events).expect("appended");
    }
    let all = store.read_all(Position::START, Direction::Forwards);
    let written: Vec<_> = all.map(|event| event.expect("readable").position).collect();
    assert_eq!(written.len(), 300);
    for turn in 0..300usize {
        let position = written[turn * 77 % 300];
        for before in [5, 40] {
            let mut reader = store.read_all(Position(position - before), Direction::Forwards);
            let found = reader.next().expect("there is one").expect("readable");
            assert_eq!(found.position, position);
        }
    }
    let mut behind = store.read_all(Position(written[299] + 5), Direction::Forwards);
    assert!(behind.next().is_none());
}

/// Whoever asked for a place inside an event had read what its bytes there said, taken for the
/// length of an event: up to the end of the chunk.
#[test]
fn a_place_inside_an_event_is_not_taken_for_a_long_one() {
    let sim = Sim::new(1);
    let most = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&most);
    let env = hooked(sim.env(), move |moment, _| {
        if let Moment::Reading(bytes) = moment {
            noted.fetch_max(bytes, Ordering::SeqCst);
        }
    });
    let wide = StoreOptions { chunk_bytes: 4 << 20, env, ..options(&sim) };
    let store = Store::open("/events", wide).expect("a new store");
    // Every fourth byte on: 2 MiB.
    let length = (2u32 << 20).to_le_bytes();
    let data = length.repeat(25_000);
    for number in 0..35 {
        let events = [NewEvent::binary(id(number), "Large", &data)];
        store.append("a", Expected::Any, &events).expect("appended");
    }
    let mut all = store.read_all(Position::START, Direction::Forwards);
    let first = all.next().expect("there is one").expect("readable").position;
    let second = all.next().expect("there is one").expect("readable").position;
    most.store(0, Ordering::SeqCst);
    for inside in 400..420 {
        let mut reader = store.read_all(Position(first + inside), Direction::Forwards);
        assert_eq!(reader.next().expect("there is one").expect("readable").position, second);
    }
    let most = most.load(Ordering::SeqCst);
    assert!(most < 1 << 20, "{most} bytes were read at once for an event of {}", data.len());
}

#[test]
fn metadata_hides_what_it_says() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append(&store, "a", 0..10);
    let set = |json: &str| {
        let event = NewEvent::json(store.new_id().expect("an id"), "$metadata", json.as_bytes());
        store.append("$$a", Expected::Any, &[event]).expect("metadata");
    };
    set(r#"{"$tb":4}"#);
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards), [4, 5, 6, 7, 8, 9]);
    assert_eq!(revisions(&store, "a", 5, Direction::Backwards), [5, 4]);
    set(r#"{"$tb":4,"$maxCount":3}"#);
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards), [7, 8, 9]);
    assert_eq!(store.stream("a").expect("known"), StreamState::Live { first: 7, last: 9 });
    set(r#"{"$maxAge":3600}"#);
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards).len(), 10);
    set(r#"{"$tb":20}"#);
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards), [0; 0]);
    assert_eq!(revisions(&store, &metadata_stream("a"), 0, Direction::Forwards), [3]);
}

#[test]
fn missing_deleted_and_ended_streams() {
    let store = store();
    append(&store, "a", 0..2);
    let state = |stream| store.stream(stream).expect("known");
    assert_eq!(state("b"), StreamState::Missing);
    assert_eq!(revisions(&store, "b", 0, Direction::Forwards), [0; 0]);
    store.delete("a", Expected::Any).expect("deleted");
    assert_eq!(state("a"), StreamState::Deleted { last: 1 });
    assert_eq!(revisions(&store, "a", 9, Direction::Backwards), [0; 0]);
    store.tombstone("a", Expected::Any).expect("ended");
    assert_eq!(state("a"), StreamState::Tombstoned);
    let mut reader = store.read("a", Revision::START, Direction::Forwards);
    assert!(matches!(reader.next(), Some(Err(Error::Deleted { stream })) if stream == "a"));
    assert!(reader.next().is_none());
    let names: Vec<_> = store.streams("", None, 10).expect("names");
    assert_eq!(names.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["$$a", "a"]);
    let all = store.read_all(Position::START, Direction::Forwards);
    let kinds: Vec<_> = all.map(|event| event.expect("readable").kind).collect();
    assert_eq!(kinds, ["Happened", "Happened", "$metadata", "$streamDeleted"]);
}

#[test]
fn a_store_that_is_opened_again_has_what_it_had() {
    let sim = Sim::new(1);
    for round in 0..5 {
        let store = Store::open("/events", options(&sim)).expect("opened");
        let read = outline(store.read("a", Revision::START, Direction::Forwards));
        assert_eq!(read.len(), round as usize * 2);
        append(&store, "a", round * 2..round * 2 + 2);
        assert!(store.verify().expect("verified").damage.is_empty());
        store.close().expect("closed");
    }
    let store = Store::open_read_only("/events", options(&sim)).expect("opened");
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards).len(), 10);
    let refused = store.append("a", Expected::Any, &[event(1)]).expect_err("read only");
    assert!(refused.to_string().contains("for reading only"), "{refused}");
}

/// The filter grew only when the index was flushed, and let hundreds of times as many through as
/// it was made for until then.
#[test]
fn the_existence_filter_grows_when_it_is_full() {
    let sim = Sim::new(1);
    let options = StoreOptions {
        existence: Size::Growing { first_keys: 1024 },
        background_threads: 1,
        chunk_bytes: limits::CHUNK_BYTES_MAX,
        ..options(&sim)
    };
    let store = Store::open("/events", options).expect("a new store");
    let chunks = store.stats().expect("stats").chunks;
    for number in 0..10_000 {
        let events = [event(number)];
        store.append(&format!("s-{number}"), Expected::NoStream, &events).expect("appended");
    }
    let mut stats = store.stats().expect("stats");
    for _ in 0..10_000 {
        if stats.existence.designed_items >= 10_000 && !stats.existence.is_filling {
            break;
        }
        store.wait_beyond(store.visible(), Duration::from_millis(1));
        stats = store.stats().expect("stats");
    }
    assert!(stats.chunks <= chunks + 2, "no chunk ended, so nothing else asked for a step");
    let existence = stats.existence;
    assert!(existence.designed_items >= 10_000, "{existence:?}");
    assert!(existence.estimated_rate < existence.designed_rate * 1.2, "{existence:?}");
}
