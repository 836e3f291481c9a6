//! Metadata of deleted streams: no change of it makes deleted events readable.

use umbel_events::{
    Direction, ExpectedVersion, MetadataUpdate, NewEvent, Position, Revision, Store, StreamAppend,
    StreamState, metadata_stream,
};

use super::support::{append, event, id, outline, store};

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
    let event = |number: u64, json: &'static str| {
        NewEvent::json(id(number), "$metadata", json.as_bytes())
    };
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
