//! Checks of the expected versions of several streams, and the reports of failed checks.

use umbel_events::{
    AppendRequest, Durability, Error, ExpectedVersion, RequestItem, Store, StoreOptions,
    StreamAppend, StreamCheck, StreamState, VersionConflict,
};
use umbel_sim::Sim;

use super::support::{append, event, options, store};

/// A store with a live, a deleted, a recreated and a tombstoned stream, and a tombstoned one that
/// never had an event.
fn prepared() -> Store {
    let store = store();
    for stream in ["live", "gone", "back", "dead"] {
        append(&store, stream, 0..2);
    }
    for stream in ["gone", "back"] {
        store.delete(stream, ExpectedVersion::Any).expect("deleted");
    }
    append(&store, "back", 2..3);
    store.tombstone("dead", ExpectedVersion::Any).expect("ended");
    store.tombstone("never", ExpectedVersion::NoStream).expect("ended");
    store
}

fn violations(
    store: &Store,
    appends: &[StreamAppend<'_>],
    checks: &[StreamCheck<'_>],
) -> Option<Vec<VersionConflict>> {
    match store.submit_with_conflicts(&AppendRequest { appends, checks }) {
        Ok(ticket) => {
            ticket.wait().expect("appended");
            None
        }
        Err(Error::VersionConflicts(violations)) => Some(violations),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn failed_check_reports_the_actual_state() {
    let store = prepared();
    let (deleted, ended) = (StreamState::Deleted { last: 1 }, StreamState::Tombstoned);
    let (live, back) =
        (StreamState::Live { first: 0, last: 1 }, StreamState::Live { first: 2, last: 2 });
    let states = [
        ("live", live),
        ("gone", deleted),
        ("back", back),
        ("dead", ended),
        ("never", ended),
        ("none", StreamState::Missing),
    ];
    let holds: [(ExpectedVersion, &[&str]); 7] = [
        (ExpectedVersion::Any, &["live", "gone", "back", "dead", "never", "none"]),
        (ExpectedVersion::NoStream, &["gone", "dead", "never", "none"]),
        (ExpectedVersion::Exists, &["live", "back"]),
        (ExpectedVersion::Exact(1), &["live", "gone"]),
        (ExpectedVersion::Exact(2), &["back"]),
        (ExpectedVersion::Deleted, &["gone"]),
        (ExpectedVersion::Tombstoned, &["dead", "never"]),
    ];
    let mut number = 100;
    for (expected, streams) in holds {
        for (stream, state) in states {
            number += 1;
            let events = [event(number)];
            let append =
                StreamAppend { stream: "log", expected: ExpectedVersion::Any, events: &events };
            let conflicts = violations(&store, &[append], &[StreamCheck { stream, expected }]);
            let violation = VersionConflict {
                item: RequestItem::Check(0),
                stream: stream.to_string(),
                expected,
                state,
                present: None,
            };
            let wanted = (!streams.contains(&stream)).then(|| vec![violation]);
            assert_eq!(conflicts, wanted, "{stream}, {expected}");
        }
    }
}

#[test]
fn all_conflicts_are_reported_and_the_single_call_reports_first() {
    let store = prepared();
    let events = [event(50)];
    let to = |stream, expected| StreamAppend { stream, expected, events: &events };
    let appends = [
        to("new", ExpectedVersion::NoStream),
        to("live", ExpectedVersion::Exact(0)),
        to("dead", ExpectedVersion::Any),
        to("gone", ExpectedVersion::Exists),
    ];
    let check = |stream, expected| StreamCheck { stream, expected };
    let checks = [
        check("live", ExpectedVersion::Exact(1)),
        check("live", ExpectedVersion::NoStream),
        check("none", ExpectedVersion::Exists),
        check("new", ExpectedVersion::Tombstoned),
    ];
    let conflicts = violations(&store, &appends, &checks).expect("refused");
    let parts: Vec<_> = conflicts.iter().map(|one| (one.item, &*one.stream)).collect();
    let wanted = [
        (RequestItem::Append(1), "live"),
        (RequestItem::Append(2), "dead"),
        (RequestItem::Append(3), "gone"),
        (RequestItem::Check(1), "live"),
        (RequestItem::Check(2), "none"),
        (RequestItem::Check(3), "new"),
    ];
    assert_eq!(parts, wanted);
    let text = Error::VersionConflicts(conflicts).to_string();
    assert!(text.contains("'live'") && text.contains("6 streams"), "{text}");
    match store.append_streams(&appends, &checks) {
        Err(Error::WrongExpectedVersion { stream, current: Some(1), .. }) => {
            assert_eq!(stream, "live")
        }
        other => panic!("{other:?}"),
    }
    match store.append_streams(&appends[2..], &[]) {
        Err(Error::StreamDeleted { stream }) => assert_eq!(stream, "dead"),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.stream_state("new").expect("open"), StreamState::Missing);
}

#[test]
fn retry_of_append_to_deleted_stream_is_recognized() {
    let store = prepared();
    for again in [false, true] {
        let done = store.append("gone", ExpectedVersion::Deleted, &[event(60), event(61)]);
        let done = done.expect("appended");
        assert_eq!((done.first, done.last, done.is_retry), (Some(2), Some(3), again));
    }
    let other = store.append("gone", ExpectedVersion::Deleted, &[event(62)]);
    assert!(
        matches!(other, Err(Error::WrongExpectedVersion { current: Some(3), .. })),
        "{other:?}"
    );
    let ended = store.append("live", ExpectedVersion::Tombstoned, &[event(63)]);
    assert!(
        matches!(ended, Err(Error::WrongExpectedVersion { current: Some(1), .. })),
        "{ended:?}"
    );
    let ended = store.append("dead", ExpectedVersion::Tombstoned, &[event(63)]);
    assert!(matches!(ended, Err(Error::StreamDeleted { .. })), "{ended:?}");
}

/// A refusal depends on the events that it names: all of these events are durable when the refusal
/// is returned.
#[test]
fn conflict_on_several_streams_waits_for_all_of_them() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    let submit = |stream, number| {
        let events = [event(number)];
        let appends =
            [StreamAppend { stream, expected: ExpectedVersion::NoStream, events: &events }];
        store.submit(&AppendRequest { appends: &appends, checks: &[] }).expect("submitted")
    };
    let (one, two) = (submit("a", 0), submit("b", 1));
    assert!(!one.is_acknowledged() && !two.is_acknowledged());
    let events = [event(2)];
    let append = StreamAppend { stream: "c", expected: ExpectedVersion::Any, events: &events };
    let checks =
        ["a", "b"].map(|stream| StreamCheck { stream, expected: ExpectedVersion::NoStream });
    let conflicts = violations(&store, &[append], &checks).expect("refused");
    assert_eq!(conflicts.len(), 2);
    assert!(one.is_acknowledged() && two.is_acknowledged(), "the revisions it named are durable");
}
