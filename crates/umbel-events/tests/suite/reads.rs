//! Reads of streams and of all events, forwards and backwards, and what metadata hides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use umbel_events::{
    Direction, Error, ExistenceSize, ExpectedVersion, NewEvent, Position, Revision, Store,
    StoreOptions, StreamState, limits, metadata_stream,
};

use super::file_system_hooks::{FileCall, with_hook};
use super::support::{append, event, id, options, outline, store};
use umbel_sim::Sim;

fn revisions(store: &Store, stream: &str, from: u64, direction: Direction) -> Vec<u64> {
    let read = outline(store.read(stream, Revision(from), direction));
    read.iter().map(|(revision, _)| *revision).collect()
}

#[test]
fn stream_is_readable_from_any_revision_in_both_directions() {
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
fn all_is_readable_from_any_position_in_both_directions() {
    let store = store();
    let large = vec![7; 10_000];
    let mut written = Vec::new();
    for number in 0..40 {
        let events = [event(2 * number), NewEvent::binary(id(2 * number + 1), "Large", &large)];
        let stream = ["a", "b", "c"][number as usize % 3];
        store.append(stream, ExpectedVersion::Any, &events).expect("appended");
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

/// Regression: every resumed subscription reads from the position after its last event. Each such
/// read once scanned the chunk from its first event to find the next event.
#[test]
fn resumed_read_does_not_scan_the_chunk() {
    let sim = Sim::new(1);
    let wide = StoreOptions { chunk_bytes: 4 << 20, ..options(&sim) };
    let store = Store::open("/events", wide).expect("a new store");
    let large = vec![7; 10_000];
    for number in 0..350 {
        let events = [NewEvent::binary(id(number), "Large", &large)];
        store.append("a", ExpectedVersion::Any, &events).expect("appended");
    }
    let newest = store.visible_position().0;
    let mut before = store.read_all(Position(newest), Direction::Backwards);
    let before = before.next().expect("there is one").expect("readable");
    let calls = |from: u64| {
        let calls = sim.calls();
        let mut reader = store.read_all(Position(from), Direction::Forwards);
        assert_eq!(reader.next().expect("there is one").expect("readable").position, newest);
        sim.calls() - calls
    };
    let after_an_event = calls(before.position + 1);
    assert!(after_an_event <= 6, "{after_an_event} calls");
    let between_two = calls(before.position + 100);
    assert!(between_two > 10, "skipping 3 MB costs only {between_two} calls");
    let again = calls(before.position + 100);
    assert!(again <= 8, "the range was scanned before, and still costs {again} calls");
    let mut tail = store.read_all(Position(newest + 1), Direction::Forwards);
    assert!(tail.next().is_none());
    append(&store, "b", 500..501);
    assert_eq!(tail.next().expect("more").expect("readable").id, id(500));
}

/// Regression: a read from a position between two events scanned the chunk from its first event
/// each time. Offsets that a scan records shorten the next scan, and must not change the result.
#[test]
fn position_between_events_leads_to_the_next_event() {
    let sim = Sim::new(1);
    let wide = StoreOptions { chunk_bytes: 4 << 20, ..options(&sim) };
    let store = Store::open("/events", wide).expect("a new store");
    for number in 0..300u64 {
        // One of them is longer than the spacing of known offsets.
        let data = vec![7; if number == 150 { 2 << 20 } else { 16_000 }];
        let events = [NewEvent::binary(id(number), "Large", &data)];
        store.append("a", ExpectedVersion::Any, &events).expect("appended");
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
    let mut after_last = store.read_all(Position(written[299] + 5), Direction::Forwards);
    assert!(after_last.next().is_none());
}

/// Regression: a read from a position inside an event took the bytes at that position for a length,
/// and read up to the end of the chunk.
#[test]
fn position_inside_an_event_reads_few_bytes() {
    let sim = Sim::new(1);
    let read_bytes_max = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&read_bytes_max);
    let env = with_hook(sim.env(), move |moment, _| {
        if let FileCall::Reading(bytes) = moment {
            noted.fetch_max(bytes, Ordering::SeqCst);
        }
    });
    let wide = StoreOptions { chunk_bytes: 4 << 20, env, ..options(&sim) };
    let store = Store::open("/events", wide).expect("a new store");
    // From every fourth byte: 2 MiB.
    let length = (2u32 << 20).to_le_bytes();
    let data = length.repeat(25_000);
    for number in 0..35 {
        let events = [NewEvent::binary(id(number), "Large", &data)];
        store.append("a", ExpectedVersion::Any, &events).expect("appended");
    }
    let mut all = store.read_all(Position::START, Direction::Forwards);
    let first = all.next().expect("there is one").expect("readable").position;
    let second = all.next().expect("there is one").expect("readable").position;
    read_bytes_max.store(0, Ordering::SeqCst);
    for inside in 400..420 {
        let mut reader = store.read_all(Position(first + inside), Direction::Forwards);
        assert_eq!(reader.next().expect("there is one").expect("readable").position, second);
    }
    let read_bytes_max = read_bytes_max.load(Ordering::SeqCst);
    assert!(
        read_bytes_max < 1 << 20,
        "{read_bytes_max} bytes were read at once for an event of {}",
        data.len()
    );
}

#[test]
fn retention_metadata_hides_events() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append(&store, "a", 0..10);
    let set = |json: &str| {
        let event = NewEvent::json(store.new_id().expect("an id"), "$metadata", json.as_bytes());
        store.append("$$a", ExpectedVersion::Any, &[event]).expect("metadata");
    };
    set(r#"{"$tb":4}"#);
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards), [4, 5, 6, 7, 8, 9]);
    assert_eq!(revisions(&store, "a", 5, Direction::Backwards), [5, 4]);
    set(r#"{"$tb":4,"$maxCount":3}"#);
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards), [7, 8, 9]);
    assert_eq!(store.stream_state("a").expect("known"), StreamState::Live { first: 7, last: 9 });
    set(r#"{"$maxAge":3600}"#);
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards).len(), 10);
    set(r#"{"$tb":20}"#);
    assert_eq!(revisions(&store, "a", 0, Direction::Forwards), [0; 0]);
    assert_eq!(revisions(&store, &metadata_stream("a"), 0, Direction::Forwards), [3]);
}

#[test]
fn missing_deleted_and_tombstoned_streams_are_reported() {
    let store = store();
    append(&store, "a", 0..2);
    let state = |stream| store.stream_state(stream).expect("known");
    assert_eq!(state("b"), StreamState::Missing);
    assert_eq!(revisions(&store, "b", 0, Direction::Forwards), [0; 0]);
    store.delete("a", ExpectedVersion::Any).expect("deleted");
    assert_eq!(state("a"), StreamState::Deleted { last: 1 });
    assert_eq!(revisions(&store, "a", 9, Direction::Backwards), [0; 0]);
    store.tombstone("a", ExpectedVersion::Any).expect("ended");
    assert_eq!(state("a"), StreamState::Tombstoned);
    let mut reader = store.read("a", Revision::START, Direction::Forwards);
    assert!(matches!(reader.next(), Some(Err(Error::StreamDeleted { stream })) if stream == "a"));
    assert!(reader.next().is_none());
    let names: Vec<_> = store.streams("", None, 10).expect("names");
    assert_eq!(names.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["$$a", "a"]);
    let all = store.read_all(Position::START, Direction::Forwards);
    let kinds: Vec<_> = all.map(|event| event.expect("readable").kind).collect();
    assert_eq!(kinds, ["Happened", "Happened", "$metadata", "$streamDeleted"]);
}

#[test]
fn reopened_store_has_all_events() {
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
    let refused = store.append("a", ExpectedVersion::Any, &[event(1)]).expect_err("read only");
    assert!(refused.to_string().contains("for reading only"), "{refused}");
}

/// Regression: the filter grew only when the index was flushed. Until the flush, the filter had
/// hundreds of times its intended false positives.
#[test]
fn full_existence_filter_grows() {
    let sim = Sim::new(1);
    let options = StoreOptions {
        existence: ExistenceSize::Growing { first_keys: 1024 },
        background_threads: 1,
        chunk_bytes: limits::CHUNK_BYTES_MAX,
        ..options(&sim)
    };
    let store = Store::open("/events", options).expect("a new store");
    let chunks = store.stats().expect("stats").chunks;
    for number in 0..10_000 {
        let events = [event(number)];
        store.append(&format!("s-{number}"), ExpectedVersion::NoStream, &events).expect("appended");
    }
    let mut stats = store.stats().expect("stats");
    for _ in 0..10_000 {
        if stats.existence.designed_items >= 10_000 && !stats.existence.is_filling {
            break;
        }
        store.wait_past(store.visible_position(), Duration::from_millis(1));
        stats = store.stats().expect("stats");
    }
    assert!(stats.chunks <= chunks + 2, "no chunk ended, so nothing else requested a step");
    let existence = stats.existence;
    assert!(existence.designed_items >= 10_000, "{existence:?}");
    assert!(existence.estimated_rate < existence.designed_rate * 1.2, "{existence:?}");
}
