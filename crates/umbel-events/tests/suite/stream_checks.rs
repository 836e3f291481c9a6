//! Checks of several streams, and what is told where they do not hold.

use umbel_events::{
    Check, Durability, Error, Expected, Part, Request, Store, StoreOptions, StreamAppend,
    StreamState, Violation,
};
use umbel_sim::Sim;

use super::support::{append, event, options, store};

/// A live stream, a deleted one, one that came back, an ended one, an ended one that never had an
/// event.
fn prepared() -> Store {
    let store = store();
    for stream in ["live", "gone", "back", "dead"] {
        append(&store, stream, 0..2);
    }
    for stream in ["gone", "back"] {
        store.delete(stream, Expected::Any).expect("deleted");
    }
    append(&store, "back", 2..3);
    store.tombstone("dead", Expected::Any).expect("ended");
    store.tombstone("never", Expected::NoStream).expect("ended");
    store
}

fn violations(
    store: &Store,
    appends: &[StreamAppend<'_>],
    checks: &[Check<'_>],
) -> Option<Vec<Violation>> {
    match store.submit_checked(&Request { appends, checks }) {
        Ok(ticket) => {
            ticket.wait().expect("appended");
            None
        }
        Err(Error::NotAsExpected(violations)) => Some(violations),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_check_holds_or_tells_what_there_is() {
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
    let holds: [(Expected, &[&str]); 7] = [
        (Expected::Any, &["live", "gone", "back", "dead", "never", "none"]),
        (Expected::NoStream, &["gone", "dead", "never", "none"]),
        (Expected::Exists, &["live", "back"]),
        (Expected::Exact(1), &["live", "gone"]),
        (Expected::Exact(2), &["back"]),
        (Expected::Deleted, &["gone"]),
        (Expected::Tombstoned, &["dead", "never"]),
    ];
    let mut number = 100;
    for (expected, streams) in holds {
        for (stream, state) in states {
            number += 1;
            let events = [event(number)];
            let append = StreamAppend { stream: "log", expected: Expected::Any, events: &events };
            let told = violations(&store, &[append], &[Check { stream, expected }]);
            let violation =
                Violation { part: Part::Check(0), stream: stream.to_string(), expected, state };
            let wanted = (!streams.contains(&stream)).then(|| vec![violation]);
            assert_eq!(told, wanted, "{stream}, {expected}");
        }
    }
}

#[test]
fn all_that_is_not_as_expected_is_told_and_the_older_call_tells_of_the_first() {
    let store = prepared();
    let events = [event(50)];
    let to = |stream, expected| StreamAppend { stream, expected, events: &events };
    let appends = [
        to("new", Expected::NoStream),
        to("live", Expected::Exact(0)),
        to("dead", Expected::Any),
        to("gone", Expected::Exists),
    ];
    let check = |stream, expected| Check { stream, expected };
    let checks = [
        check("live", Expected::Exact(1)),
        check("live", Expected::NoStream),
        check("none", Expected::Exists),
        check("new", Expected::Tombstoned),
    ];
    let told = violations(&store, &appends, &checks).expect("refused");
    let parts: Vec<_> = told.iter().map(|one| (one.part, &*one.stream)).collect();
    let wanted = [
        (Part::Append(1), "live"),
        (Part::Append(2), "dead"),
        (Part::Append(3), "gone"),
        (Part::Check(1), "live"),
        (Part::Check(2), "none"),
        (Part::Check(3), "new"),
    ];
    assert_eq!(parts, wanted);
    let text = Error::NotAsExpected(told).to_string();
    assert!(text.contains("'live'") && text.contains("6 streams"), "{text}");
    match store.append_together(&appends, &checks) {
        Err(Error::WrongExpected { stream, current: Some(1), .. }) => assert_eq!(stream, "live"),
        other => panic!("{other:?}"),
    }
    match store.append_together(&appends[2..], &[]) {
        Err(Error::Deleted { stream }) => assert_eq!(stream, "dead"),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.stream("new").expect("open"), StreamState::Missing);
}

#[test]
fn a_retry_of_an_append_to_a_deleted_stream_is_known() {
    let store = prepared();
    for again in [false, true] {
        let done = store.append("gone", Expected::Deleted, &[event(60), event(61)]);
        let done = done.expect("appended");
        assert_eq!((done.first, done.last, done.was_there), (Some(2), Some(3), again));
    }
    let other = store.append("gone", Expected::Deleted, &[event(62)]);
    assert!(matches!(other, Err(Error::WrongExpected { current: Some(3), .. })), "{other:?}");
    let ended = store.append("live", Expected::Tombstoned, &[event(63)]);
    assert!(matches!(ended, Err(Error::WrongExpected { current: Some(1), .. })), "{ended:?}");
    let ended = store.append("dead", Expected::Tombstoned, &[event(63)]);
    assert!(matches!(ended, Err(Error::Deleted { .. })), "{ended:?}");
}

/// A refusal rests on what it names: all of it is durable when it is told.
#[test]
fn a_refusal_about_several_streams_waits_for_all_of_them() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    let submit = |stream, number| {
        let events = [event(number)];
        let appends = [StreamAppend { stream, expected: Expected::NoStream, events: &events }];
        store.submit(&Request { appends: &appends, checks: &[] }).expect("submitted")
    };
    let (one, two) = (submit("a", 0), submit("b", 1));
    assert!(!one.is_done() && !two.is_done());
    let events = [event(2)];
    let append = StreamAppend { stream: "c", expected: Expected::Any, events: &events };
    let checks = ["a", "b"].map(|stream| Check { stream, expected: Expected::NoStream });
    let told = violations(&store, &[append], &checks).expect("refused");
    assert_eq!(told.len(), 2);
    assert!(one.is_done() && two.is_done(), "the revisions it named are durable");
}
