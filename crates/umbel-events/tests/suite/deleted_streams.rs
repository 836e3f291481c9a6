//! Metadata of deleted streams: no change of it makes deleted events readable.

use std::time::Duration;

use umbel_events::{
    Direction, Error, ExpectedVersion, MetadataUpdate, NewEvent, Position, PresentEvents, Revision,
    ScavengeOptions, Source, Store, StreamAppend, StreamState, SubscriptionStart, metadata_stream,
};
use umbel_sim::Sim;

use super::support::{append, event, id, options, outline, store};

const STREAM: &str = "cart-1";
const DELETED: &str = r#"{"$tb":9223372036854775807}"#;

fn set_metadata(store: &Store, expected: ExpectedVersion, json: &str) -> (u64, bool) {
    let event = NewEvent::json(store.new_id().expect("an id"), "$metadata", json.as_bytes());
    let done = store.append(&metadata_stream(STREAM), expected, &[event]).expect("metadata");
    let last = done.last.expect("a revision");
    let again = store.append(&metadata_stream(STREAM), expected, &[event]).expect("a retry");
    assert_eq!((again.last, again.position, again.is_retry), (Some(last), done.position, true));
    (last, done.position.is_some())
}

fn metadata(store: &Store) -> String {
    let newest = store.read(&metadata_stream(STREAM), Revision::END, Direction::Backwards).next();
    String::from_utf8(newest.expect("metadata").expect("readable").data).expect("text")
}

fn read(store: &Store) -> Vec<u64> {
    let events = outline(store.read(STREAM, Revision::START, Direction::Forwards));
    events.into_iter().map(|(revision, _)| revision).collect()
}

fn deleted(events: u64) -> Store {
    let store = store();
    append(&store, STREAM, 0..events);
    store.delete(STREAM, ExpectedVersion::Any).expect("deleted");
    store
}

#[test]
fn metadata_without_tb_does_not_bring_deleted_events_back() {
    for (json, wanted, state) in [
        ("{}", r#"{"$tb":3}"#, StreamState::Live { first: 3, last: 2 }),
        (
            r#"{"$maxCount":9,"x":1.50}"#,
            r#"{"$maxCount":9,"$tb":3,"x":1.50}"#,
            StreamState::Live { first: 3, last: 2 },
        ),
        // A `$tb` that the client writes is obeyed.
        (r#"{"$tb":1}"#, r#"{"$tb":1}"#, StreamState::Live { first: 1, last: 2 }),
        (r#"{"$tb":0}"#, r#"{"$tb":0}"#, StreamState::Live { first: 0, last: 2 }),
        (DELETED, DELETED, StreamState::Deleted { last: 2 }),
    ] {
        for expected in [ExpectedVersion::Any, ExpectedVersion::Exact(0)] {
            let store = deleted(3);
            assert_eq!(set_metadata(&store, expected, json), (1, true), "{json}");
            assert_eq!(metadata(&store), wanted, "{json}");
            assert_eq!(store.stream_state(STREAM).expect("known"), state, "{json}");
            let first = if let StreamState::Live { first, .. } = state { first } else { 3 };
            assert_eq!(read(&store), (first..3).collect::<Vec<_>>(), "{json}");
            append(&store, STREAM, 70..72);
            assert_eq!(read(&store), (first..5).collect::<Vec<_>>(), "{json}");
            assert!(store.verify().expect("verified").damage.is_empty());
        }
    }
}

/// The positions and revisions of an append are those of the client's own events.
#[test]
fn metadata_that_follows_is_part_of_the_same_append() {
    let store = deleted(3);
    let own = [NewEvent::json(id(80), "$metadata", b"{}"), NewEvent::json(id(81), "m", b"{}")];
    let (new, other) = ([event(82), event(83)], [event(84)]);
    let metadata_name = metadata_stream(STREAM);
    let appends = [
        StreamAppend { stream: &metadata_name, expected: ExpectedVersion::Exact(0), events: &own },
        StreamAppend { stream: STREAM, expected: ExpectedVersion::NoStream, events: &new },
        StreamAppend { stream: "other", expected: ExpectedVersion::NoStream, events: &other },
    ];
    let done = store.append_streams(&appends, &[]).expect("appended");
    let lasts: Vec<_> = done.iter().map(|done| done.last.expect("a revision")).collect();
    assert_eq!(lasts, [2, 4, 0]);
    let all: Vec<_> = store.read_all(Position::START, Direction::Forwards).collect();
    let all: Vec<_> = all.into_iter().map(|event| event.expect("readable")).collect();
    for (done, event) in done.iter().zip([id(81), id(83), id(84)]) {
        let there = all.iter().find(|there| there.id == event).expect("written");
        assert_eq!(done.position, Some(there.position));
    }
    assert_eq!((read(&store), metadata(&store)), (vec![3, 4], r#"{"$tb":3}"#.to_string()));
    let newest = all.last().expect("events");
    assert_eq!((&*newest.stream, newest.revision), (&*metadata_name, 3));
}

#[test]
fn only_the_last_metadata_of_an_append_counts() {
    let store = deleted(2);
    let event =
        |number: u64, json: &'static str| NewEvent::json(id(number), "$metadata", json.as_bytes());
    let events = [event(60, r#"{"$tb":1}"#), event(61, r#"{"x":1}"#)];
    store.append(&metadata_stream(STREAM), ExpectedVersion::Any, &events).expect("metadata");
    assert_eq!((read(&store), metadata(&store)), (vec![], r#"{"$tb":2,"x":1}"#.to_string()));
    // The stream is no longer deleted: metadata without `$tb` shows everything.
    set_metadata(&store, ExpectedVersion::Any, "{}");
    assert_eq!((read(&store), metadata(&store)), (vec![0, 1], "{}".to_string()));
}

#[test]
fn metadata_update_keeps_what_it_does_not_change() {
    let store = store();
    append(&store, STREAM, 0..3);
    let own = r#"{"$acl":{"$r":["ada"]},"$maxAge":60,"color":"red"}"#;
    set_metadata(&store, ExpectedVersion::Any, own);
    store.update_metadata(STREAM, MetadataUpdate::RaiseTruncateBefore(2)).expect("updated");
    store.update_metadata(STREAM, MetadataUpdate::RaiseTruncateBefore(1)).expect("no change");
    store.update_metadata(STREAM, MetadataUpdate::DefaultMaxCount(5)).expect("updated");
    let wanted = r#"{"$acl":{"$r":["ada"]},"$maxAge":60,"$maxCount":5,"$tb":2,"color":"red"}"#;
    assert_eq!((metadata(&store), read(&store)), (wanted.to_string(), vec![2]));
    store.delete(STREAM, ExpectedVersion::Any).expect("deleted");
    store.update_metadata(STREAM, MetadataUpdate::RaiseTruncateBefore(3)).expect("no change");
    assert_eq!(store.stream_state(STREAM).expect("known"), StreamState::Deleted { last: 2 });
}

/// Regression: a deletion written before the stream's first event does not apply, but views hid
/// the stream's events, and a scavenge removed them.
#[test]
fn deletion_before_the_first_event_hides_nothing() {
    let store = store();
    set_metadata(&store, ExpectedVersion::Any, DELETED);
    append(&store, STREAM, 0..3);
    let visible = || {
        let view = store.read_view("$ce-cart", Revision::START, Direction::Forwards, Position::END);
        view.filter(|entry| entry.as_ref().expect("readable").event.is_some()).count()
    };
    assert_eq!((read(&store), visible()), (vec![0, 1, 2], 3));
    for number in 0..40 {
        super::support::append_large(&store, "filler", 1000 + number, 8 << 10);
    }
    store.scavenge(&super::scavenge::all()).expect("scavenged");
    assert_eq!((read(&store), visible()), (vec![0, 1, 2], 3));
}

/// A stream with only metadata could not be deleted at all.
#[test]
fn stream_with_metadata_only_can_be_deleted() {
    for expected in [ExpectedVersion::Any, ExpectedVersion::NoStream, ExpectedVersion::Exists] {
        let store = store();
        set_metadata(&store, ExpectedVersion::Any, r#"{"$maxCount":9,"x":1}"#);
        let done = store.delete(STREAM, expected).expect("deleted");
        assert_eq!((done.last, done.first), (None, None));
        let wanted = r#"{"$maxCount":9,"$tb":9223372036854775807,"x":1}"#;
        assert_eq!(metadata(&store), wanted, "{expected:?}");
        let again = store.delete(STREAM, ExpectedVersion::Any).expect("deleted already");
        assert_eq!(again.position, done.position, "a second delete changes nothing");
        assert_eq!(store.stream_state(STREAM).expect("known"), StreamState::Missing);
        append(&store, STREAM, 0..2);
        assert_eq!(read(&store), [0, 1], "later events are readable");
        // A client reads the metadata, changes a key and writes it back.
        set_metadata(&store, ExpectedVersion::Any, &wanted.replace(r#""x""#, r#""y""#));
        assert_eq!(read(&store), [0, 1], "a copied deletion hides nothing");
        assert_eq!(metadata(&store), r#"{"$maxCount":9,"$tb":0,"y":1}"#);
        store.delete(STREAM, ExpectedVersion::Exact(1)).expect("deleted");
        assert_eq!(read(&store), [0_u64; 0]);
    }
}

#[test]
fn metadata_of_a_tombstoned_stream_is_deleted() {
    let is_deleted = |error: Error, name: &str| {
        assert!(matches!(&error, Error::StreamDeleted { stream } if stream == name), "{error:?}");
    };
    for (has_events, has_metadata) in [(true, true), (true, false), (false, true), (false, false)] {
        let store = store();
        if has_events {
            append(&store, STREAM, 0..2);
        }
        if has_metadata {
            set_metadata(&store, ExpectedVersion::Any, r#"{"x":1}"#);
        }
        store.tombstone(STREAM, ExpectedVersion::Any).expect("tombstoned");
        let name = metadata_stream(STREAM);
        for (from, direction) in
            [(Revision::START, Direction::Forwards), (Revision::END, Direction::Backwards)]
        {
            let first = store.read(&name, from, direction).next().expect("an error");
            is_deleted(first.expect_err("deleted"), &name);
        }
        assert_eq!(store.stream_state(&name).expect("known"), StreamState::Tombstoned);
        let listed = store.streams("$$cart", None, 9).expect("listed");
        assert!(listed.iter().all(|(_, state)| *state == StreamState::Tombstoned), "{listed:?}");
        let event = [NewEvent::json(id(90), "$metadata", b"{}")];
        is_deleted(store.append(&name, ExpectedVersion::Any, &event).expect_err("refused"), &name);
        let source = Source::named(&*name);
        let mut follower = store.subscribe(source, SubscriptionStart::Start).expect("opened");
        is_deleted(follower.next_batch(10, Duration::ZERO).map(drop).expect_err("deleted"), &name);
        let view =
            store.read_view("$et-$metadata", Revision::START, Direction::Forwards, Position::END);
        assert_eq!(view.filter(|entry| entry.as_ref().expect("read").event.is_some()).count(), 0);
        // Permissions are still decided by it.
        let own = store.metadata(STREAM).expect("read").map(|event| event.data);
        assert_eq!(own.as_deref(), has_metadata.then_some(&br#"{"x":1}"#[..]));
    }
}

/// An acknowledged append after a deletion is readable, although an event with its id was there
/// before the deletion.
#[test]
fn event_is_written_again_after_a_deletion() {
    let sim = Sim::new(1);
    let mut store = Store::open("/events", options(&sim)).expect("a new store");
    let delete_by_metadata = |store: &Store| {
        set_metadata(store, ExpectedVersion::Any, DELETED);
    };
    let delete = |store: &Store| {
        store.delete(STREAM, ExpectedVersion::Any).expect("deleted");
    };
    type Change<'a> = &'a dyn Fn(&Store);
    let ways: [(Change<'_>, bool); 4] =
        [(&delete, false), (&delete_by_metadata, false), (&delete, true), (&delete, true)];
    append(&store, STREAM, 0..1);
    let mut next = 1;
    for (number, (delete, reopens)) in ways.into_iter().enumerate() {
        delete(&store);
        if reopens {
            store.close().expect("closed");
            store = Store::open("/events", options(&sim)).expect("opened again");
        }
        let other = 100 + number as u64;
        for numbers in [vec![0], vec![0, other], vec![0, other]] {
            let events: Vec<_> = numbers.iter().copied().map(event).collect();
            let is_retry = numbers.len() == 2 && read(&store).len() == 2;
            let append = || store.append(STREAM, ExpectedVersion::Any, &events);
            if numbers.len() == 2 && !is_retry {
                // The first event alone is there already.
                let error = append().expect_err("a part is present");
                let Error::WrongExpectedVersion { present: Some(present), .. } = &error else {
                    panic!("{error:?}");
                };
                let wanted = PresentEvents { first_revision: next - 1, count: 1, appended: 2 };
                assert_eq!(*present, wanted);
                let text = error.to_string();
                assert!(text.contains("already has the first 1 of the 2 events"), "{text}");
                store.delete(STREAM, ExpectedVersion::Any).expect("deleted");
            }
            let done = append().expect("appended");
            assert_eq!((done.first, done.is_retry), (Some(next), false), "{numbers:?}");
            let again = append().expect("a retry");
            assert_eq!((again.first, again.is_retry), (Some(next), true), "{numbers:?}");
            let wanted: Vec<u64> = (next..next + numbers.len() as u64).collect();
            assert_eq!(read(&store), wanted, "{number} {numbers:?}");
            next += numbers.len() as u64;
            if numbers.len() == 2 {
                break;
            }
        }
    }
}

/// A scavenge keeps the event that deletes a stream as long as ids of the stream's events.
#[test]
fn scavenge_keeps_a_deletion_for_retries() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append(&store, STREAM, 0..1);
    store.delete(STREAM, ExpectedVersion::Any).expect("deleted");
    append(&store, STREAM, 1..2);
    for number in 0..40 {
        super::support::append_large(&store, "filler", 1000 + number, 8 << 10);
    }
    let retries = ScavengeOptions { retry_bytes: 1 << 20, ..super::scavenge::all() };
    store.scavenge(&retries).expect("scavenged");
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    let done = store.append(STREAM, ExpectedVersion::Any, &[event(0)]).expect("appended");
    assert_eq!((done.first, done.is_retry), (Some(2), false));
    assert_eq!(read(&store), [1, 2]);
}

/// An append to several streams of which one has its events already is refused with the cause.
#[test]
fn append_written_in_part_names_the_stream_that_has_its_events() {
    let store = store();
    append(&store, "a", 0..2);
    let (old, new) = ([event(0), event(1)], [event(9)]);
    let appends = [
        StreamAppend { stream: "b", expected: ExpectedVersion::Any, events: &new },
        StreamAppend { stream: "a", expected: ExpectedVersion::Any, events: &old },
    ];
    let error = store.append_streams(&appends, &[]).expect_err("refused");
    let wanted = PresentEvents { first_revision: 0, count: 2, appended: 2 };
    let Error::WrongExpectedVersion { stream, present, .. } = &error else { panic!("{error:?}") };
    assert_eq!((&**stream, *present), ("a", Some(wanted)));
    assert!(error.to_string().contains("another stream of the append lacks"), "{error}");
    for (expected, first) in [(ExpectedVersion::NoStream, 0), (ExpectedVersion::Exact(0), 1)] {
        let events = [event(first), event(9)];
        let error = store.append("a", expected, &events).expect_err("refused");
        let wanted = PresentEvents { first_revision: first, count: 1, appended: 2 };
        let found = matches!(&error, Error::WrongExpectedVersion { present: Some(present), .. }
            if *present == wanted);
        assert!(found, "{error:?}");
    }
}
