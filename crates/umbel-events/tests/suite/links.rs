//! Links: their targets, and the results of links without a target.

use umbel_events::{
    Direction, ExpectedVersion, NewEvent, RecordedEvent, ResolvedEvent, Revision, Store, limits,
    metadata_stream,
};

use super::support::{append, id, store};

/// Appends a link and reads it back.
fn link(store: &Store, number: u64, data: &[u8]) -> RecordedEvent {
    let event = NewEvent::binary(id(number), "$>", data);
    store.append("links", ExpectedVersion::Any, &[event]).expect("appended");
    let mut newest = store.read("links", Revision::END, Direction::Backwards);
    newest.next().expect("just appended").expect("readable")
}

fn resolved(store: &Store, number: u64, data: &[u8]) -> ResolvedEvent {
    let link = link(store, number, data);
    let resolved = store.resolve(link.clone()).expect("whatever it says");
    assert_eq!(resolved.link, Some(link));
    resolved
}

#[test]
fn link_resolves_to_the_readable_event() {
    let store = store();
    append(&store, "a@b", 0..5);
    let plain = store.read("a@b", Revision(1), Direction::Forwards).next();
    let plain = plain.expect("there").expect("readable");
    let as_it_is = ResolvedEvent { event: Some(plain.clone()), link: None };
    assert_eq!(store.resolve(plain.clone()).expect("no link"), as_it_is);
    assert_eq!(resolved(&store, 100, b"1@a@b").event, Some(plain));

    let metadata = NewEvent::json(id(50), "$metadata", br#"{"$tb":3}"#);
    store.append(&metadata_stream("a@b"), ExpectedVersion::Any, &[metadata]).expect("appended");
    assert_eq!(resolved(&store, 101, b"1@a@b").event, None, "it is hidden");
    assert_eq!(resolved(&store, 102, b"3@a@b").event.expect("shown").id, id(3));
    assert_eq!(resolved(&store, 103, b"0@$$a@b").event.expect("metadata").id, id(50));

    store.delete("a@b", ExpectedVersion::Any).expect("deleted");
    assert_eq!(resolved(&store, 104, b"3@a@b").event, None, "it is deleted");
    append(&store, "a@b", 5..6);
    assert_eq!(resolved(&store, 105, b"5@a@b").event.expect("it was recreated").id, id(5));
    assert_eq!(resolved(&store, 106, b"4@a@b").event, None);
    store.tombstone("a@b", ExpectedVersion::Any).expect("ended");
    assert_eq!(resolved(&store, 107, b"5@a@b").event, None, "it was tombstoned");
}

/// Regression: events that are too old lie between the link's target and the first readable event.
/// The lookup once scanned all these events.
#[test]
fn link_to_expired_event_resolves_to_none() {
    let store = store();
    append(&store, "a", 0..3);
    let metadata = NewEvent::json(id(50), "$metadata", br#"{"$maxAge":1}"#);
    store.append(&metadata_stream("a"), ExpectedVersion::Any, &[metadata]).expect("appended");
    let at_once = resolved(&store, 100, b"1@a").event;
    let read = store.read("a", Revision(1), Direction::Forwards).next().transpose();
    assert_eq!(at_once.is_some(), read.expect("readable").is_some_and(|event| event.revision == 1));
}

#[test]
fn link_to_a_link_is_not_followed() {
    let store = store();
    append(&store, "a", 0..1);
    let first = link(&store, 100, b"0@a");
    let second = resolved(&store, 101, b"0@links");
    assert_eq!(second.event, Some(first));
    let circle = resolved(&store, 102, b"2@links");
    assert_eq!(circle.event, circle.link);
}

#[test]
fn link_without_target_is_no_error() {
    let store = store();
    append(&store, "a", 0..3);
    let long = format!("0@{}", "x".repeat(limits::STREAM_NAME_BYTES_MAX * 4));
    let hostile: [&[u8]; 16] = [
        b"",
        b"@",
        b"0",
        b"0@",
        b"@a",
        b"3@a",
        b"-1@a",
        b" 1@a",
        b"1 @a",
        b"0x1@a",
        b"1.0@a",
        b"9223372036854775807@a",
        b"18446744073709551615@a",
        b"99999999999999999999@a",
        b"0@\xff\xfe",
        long.as_bytes(),
    ];
    for (number, data) in (100..).zip(hostile) {
        assert_eq!(resolved(&store, number, data).event, None, "{}", data.escape_ascii());
    }
    let all = resolved(&store, 200, b"0@$all");
    assert_eq!(all.event, None);
}
