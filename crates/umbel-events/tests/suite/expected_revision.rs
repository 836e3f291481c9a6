//! Table of the results of appends, by the state of the stream and the expected version, for a
//! first append and for a retry. `docs/reference/event-store.md` has the same table.

use umbel_events::{
    Direction, Error, ExpectedVersion, NewEvent, Revision, Store, StreamState, WriteResult,
    metadata_stream,
};

use super::support::{append, event, id, outline, store};

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Never,
    Live,
    Deleted,
    Recreated,
    Truncated,
    MetadataOnly,
    Tombstoned,
}

const STATES: [State; 7] = [
    State::Never,
    State::Live,
    State::Deleted,
    State::Recreated,
    State::Truncated,
    State::MetadataOnly,
    State::Tombstoned,
];

const STREAM: &str = "cart-1";

fn metadata(store: &Store, json: &str) {
    let event = NewEvent::json(store.new_id().expect("an id"), "$metadata", json.as_bytes());
    store.append(&metadata_stream(STREAM), ExpectedVersion::Any, &[event]).expect("metadata");
}

/// A store whose stream has this state. Events of the stream up to revision 2 have the ids 0 to 2.
fn prepared(state: State) -> Store {
    let store = store();
    append(&store, "another", 900..903);
    if !matches!(state, State::Never | State::MetadataOnly) {
        append(&store, STREAM, 0..3);
    }
    match state {
        State::Never | State::Live => {}
        State::Deleted => drop(store.delete(STREAM, ExpectedVersion::Any).expect("deleted")),
        State::Recreated => {
            store.delete(STREAM, ExpectedVersion::Any).expect("deleted");
            append(&store, STREAM, 3..5);
        }
        State::Truncated => metadata(&store, r#"{"$tb":2}"#),
        State::MetadataOnly => metadata(&store, r#"{"$maxCount":9}"#),
        State::Tombstoned => drop(store.tombstone(STREAM, ExpectedVersion::Any).expect("ended")),
    }
    store
}

/// Result of an append, in short.
#[derive(Debug, PartialEq, Eq)]
enum ExpectedOutcome {
    Appended(u64, u64),
    Retry(u64, u64),
    NoEvents(Option<u64>),
    Conflict(Option<u64>),
    Deleted,
}

fn outcome(result: Result<WriteResult, Error>) -> ExpectedOutcome {
    match result {
        Ok(WriteResult { first: Some(first), last: Some(last), is_retry: was_there, position }) => {
            assert!(position.is_some(), "events have a position");
            if was_there {
                ExpectedOutcome::Retry(first, last)
            } else {
                ExpectedOutcome::Appended(first, last)
            }
        }
        Ok(WriteResult { last, .. }) => ExpectedOutcome::NoEvents(last),
        Err(Error::WrongExpectedVersion { current, stream, .. }) => {
            assert_eq!(stream, STREAM);
            ExpectedOutcome::Conflict(current)
        }
        Err(Error::StreamDeleted { stream }) => {
            assert_eq!(stream, STREAM);
            ExpectedOutcome::Deleted
        }
        Err(error) => panic!("{error}"),
    }
}

/// Row of the table for a state: any, no stream, exists, exact, too low, too high.
fn row(state: State) -> [ExpectedOutcome; 6] {
    use ExpectedOutcome::{Appended as A, Conflict as W, Deleted as D};
    match state {
        State::Never => [A(0, 1), A(0, 1), W(None), W(None), W(None), W(None)],
        State::Live | State::Truncated => {
            [A(3, 4), W(Some(2)), A(3, 4), A(3, 4), W(Some(2)), W(Some(2))]
        }
        State::Deleted => [A(3, 4), A(3, 4), D, A(3, 4), W(Some(2)), W(Some(2))],
        State::Recreated => [A(5, 6), W(Some(4)), A(5, 6), A(5, 6), W(Some(4)), W(Some(4))],
        State::MetadataOnly => [A(0, 1), A(0, 1), A(0, 1), W(None), W(None), W(None)],
        State::Tombstoned => [D, D, D, D, D, D],
    }
}

fn last(state: State) -> u64 {
    if state == State::Recreated { 4 } else { 2 }
}

#[test]
fn expected_revision_table_holds_for_first_append_and_retry() {
    for state in STATES {
        let last = last(state);
        let expectations = [
            ExpectedVersion::Any,
            ExpectedVersion::NoStream,
            ExpectedVersion::Exists,
            ExpectedVersion::Exact(last),
            ExpectedVersion::Exact(0),
            ExpectedVersion::Exact(last + 90),
        ];
        for (expected, wanted) in expectations.into_iter().zip(row(state)) {
            let store = prepared(state);
            let events = [event(50), event(51)];
            let first = outcome(store.append(STREAM, expected, &events));
            assert_eq!(first, wanted, "{state:?}, {expected:?}");
            let again = outcome(store.append(STREAM, expected, &events));
            let wanted_again = match first {
                ExpectedOutcome::Appended(from, to) => ExpectedOutcome::Retry(from, to),
                other => other,
            };
            assert_eq!(again, wanted_again, "{state:?}, {expected:?}, again");
        }
    }
}

#[test]
fn late_retry_is_recognized() {
    let append = |state: State, expected, numbers: &[u64]| {
        let store = prepared(state);
        let events: Vec<_> = numbers.iter().copied().map(event).collect();
        outcome(store.append(STREAM, expected, &events))
    };
    for state in [State::Live, State::Truncated, State::Recreated] {
        let is_deleted = state == State::Recreated;
        // Events before a deletion are not recognized where the append names no revision.
        let at_end = |numbers: u64| ExpectedOutcome::Appended(5, 4 + numbers);
        let unless_deleted =
            |numbers: u64, wanted| if is_deleted { at_end(numbers) } else { wanted };
        let wrong = || ExpectedOutcome::Conflict(Some(last(state)));
        assert_eq!(
            append(state, ExpectedVersion::NoStream, &[0, 1, 2]),
            ExpectedOutcome::Retry(0, 2),
            "{state:?}"
        );
        assert_eq!(
            append(state, ExpectedVersion::NoStream, &[0]),
            ExpectedOutcome::Retry(0, 0),
            "{state:?}"
        );
        assert_eq!(
            append(state, ExpectedVersion::Exact(0), &[1, 2]),
            ExpectedOutcome::Retry(1, 2),
            "{state:?}"
        );
        assert_eq!(
            append(state, ExpectedVersion::Any, &[1, 2]),
            unless_deleted(2, ExpectedOutcome::Retry(1, 2)),
            "{state:?}"
        );
        assert_eq!(
            append(state, ExpectedVersion::Exists, &[2]),
            unless_deleted(1, ExpectedOutcome::Retry(2, 2)),
            "{state:?}"
        );
        // The first event exists, the second does not: neither a retry nor new.
        assert_eq!(append(state, ExpectedVersion::NoStream, &[0, 9]), wrong(), "{state:?}");
        assert_eq!(append(state, ExpectedVersion::Exact(0), &[1, 9]), wrong(), "{state:?}");
        for expected in [ExpectedVersion::Any, ExpectedVersion::Exists] {
            assert_eq!(append(state, expected, &[1, 9]), unless_deleted(2, wrong()), "{state:?}");
        }
    }
    for expected in [ExpectedVersion::Any, ExpectedVersion::Exists, ExpectedVersion::Exact(2)] {
        let wanted = ExpectedOutcome::Retry(3, 4);
        assert_eq!(append(State::Recreated, expected, &[3, 4]), wanted, "{expected:?}");
    }
    assert_eq!(
        append(State::Deleted, ExpectedVersion::NoStream, &[0]),
        ExpectedOutcome::Appended(3, 3)
    );
    assert_eq!(
        append(State::Deleted, ExpectedVersion::Exact(0), &[1, 2]),
        ExpectedOutcome::Retry(1, 2)
    );
    assert_eq!(
        append(State::Deleted, ExpectedVersion::Any, &[1, 2]),
        ExpectedOutcome::Appended(3, 4)
    );
    assert_eq!(
        append(State::Deleted, ExpectedVersion::Any, &[1, 9]),
        ExpectedOutcome::Appended(3, 4)
    );
    assert_eq!(append(State::Deleted, ExpectedVersion::Exists, &[1, 2]), ExpectedOutcome::Deleted);
}

#[test]
fn empty_append_checks_the_expected_revision() {
    let append_none = |state, expected| outcome(prepared(state).append(STREAM, expected, &[]));
    assert_eq!(
        append_none(State::Never, ExpectedVersion::NoStream),
        ExpectedOutcome::NoEvents(None)
    );
    assert_eq!(
        append_none(State::Live, ExpectedVersion::Exact(2)),
        ExpectedOutcome::NoEvents(Some(2))
    );
    assert_eq!(
        append_none(State::Live, ExpectedVersion::NoStream),
        ExpectedOutcome::Conflict(Some(2))
    );
    assert_eq!(append_none(State::Tombstoned, ExpectedVersion::Any), ExpectedOutcome::Deleted);
}

#[test]
fn delete_and_tombstone_change_the_stream_state() {
    let delete = |state, expected| match prepared(state).delete(STREAM, expected) {
        Ok(done) => {
            assert!(done.position.is_some());
            ExpectedOutcome::NoEvents(done.last)
        }
        failed => outcome(failed),
    };
    let all = [
        ExpectedVersion::Any,
        ExpectedVersion::NoStream,
        ExpectedVersion::Exists,
        ExpectedVersion::Exact(2),
    ];
    for expected in all {
        let wanted = ExpectedOutcome::Conflict(None);
        assert_eq!(delete(State::Never, expected), wanted, "{expected:?}");
        let wanted = match expected {
            ExpectedVersion::Exact(_) => wanted,
            _ => ExpectedOutcome::NoEvents(None),
        };
        assert_eq!(delete(State::MetadataOnly, expected), wanted, "{expected:?}");
    }
    for state in [State::Live, State::Truncated, State::Deleted] {
        for expected in [ExpectedVersion::Any, ExpectedVersion::Exists, ExpectedVersion::Exact(2)] {
            let wanted = match (state, expected) {
                (State::Deleted, ExpectedVersion::Exists) => ExpectedOutcome::Deleted,
                _ => ExpectedOutcome::NoEvents(Some(2)),
            };
            assert_eq!(delete(state, expected), wanted, "{state:?} {expected:?}");
        }
        assert_eq!(
            delete(state, ExpectedVersion::Exact(1)),
            ExpectedOutcome::Conflict(Some(2)),
            "{state:?}"
        );
    }
    assert_eq!(delete(State::Live, ExpectedVersion::NoStream), ExpectedOutcome::Conflict(Some(2)));
    assert_eq!(delete(State::Tombstoned, ExpectedVersion::Any), ExpectedOutcome::Deleted);

    let end = |state, expected| match prepared(state).tombstone(STREAM, expected) {
        Ok(done) => {
            assert!(done.position.is_some());
            ExpectedOutcome::NoEvents(done.last)
        }
        failed => outcome(failed),
    };
    for expected in [ExpectedVersion::Any, ExpectedVersion::NoStream] {
        assert_eq!(end(State::Never, expected), ExpectedOutcome::NoEvents(None), "{expected:?}");
        assert_eq!(
            end(State::Deleted, expected),
            ExpectedOutcome::NoEvents(Some(2)),
            "{expected:?}"
        );
    }
    assert_eq!(end(State::Live, ExpectedVersion::Exact(2)), ExpectedOutcome::NoEvents(Some(2)));
    assert_eq!(end(State::Live, ExpectedVersion::Exact(1)), ExpectedOutcome::Conflict(Some(2)));
    assert_eq!(end(State::Never, ExpectedVersion::Exists), ExpectedOutcome::Conflict(None));
    assert_eq!(end(State::Deleted, ExpectedVersion::Exists), ExpectedOutcome::Deleted);
    assert_eq!(end(State::Tombstoned, ExpectedVersion::Any), ExpectedOutcome::Deleted);
}

#[test]
fn recreated_stream_shows_new_events_and_keeps_metadata() {
    let store = prepared(State::Live);
    metadata(&store, r#"{"$acl":{},"color":"red"}"#);
    store.delete(STREAM, ExpectedVersion::Exact(2)).expect("deleted");
    assert_eq!(outline(store.read(STREAM, Revision::START, Direction::Forwards)), []);
    append(&store, STREAM, 60..62);
    let read = outline(store.read(STREAM, Revision::START, Direction::Forwards));
    assert_eq!(read, [(3, id(60)), (4, id(61))]);
    let kept = store.read(&metadata_stream(STREAM), Revision::END, Direction::Backwards).next();
    let kept = kept.expect("metadata").expect("readable");
    assert_eq!(kept.data, br#"{"$acl":{},"$tb":3,"color":"red"}"#);
}

/// Regression: a delete that was written before the stream had an event does not hide later events.
#[test]
fn stream_deleted_before_creation_is_readable_later() {
    for expected in [ExpectedVersion::Any, ExpectedVersion::NoStream] {
        let store = store();
        let deleted = NewEvent::json(id(90), "$metadata", br#"{"$tb":9223372036854775807}"#);
        store.append("$$a", ExpectedVersion::Any, &[deleted]).expect("metadata alone");
        store.append("a", expected, &[event(0)]).expect("a first event");
        store.append("a", ExpectedVersion::Exact(0), &[event(1)]).expect("a second one");
        let read = outline(store.read("a", Revision::START, Direction::Forwards));
        assert_eq!(read, [(0, id(0)), (1, id(1))]);
        assert_eq!(
            store.stream_state("a").expect("known"),
            StreamState::Live { first: 0, last: 1 }
        );
        store.delete("a", ExpectedVersion::Any).expect("deleted now");
        assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)), []);
    }
}

#[test]
fn retry_of_append_with_duplicate_id_is_recognized() {
    let store = store();
    let events = [event(7), event(7)];
    let first = store.append("a", ExpectedVersion::Any, &events).expect("appended");
    let again = store.append("a", ExpectedVersion::Any, &events).expect("recognized as a retry");
    assert_eq!((first.first, first.last), (Some(0), Some(1)));
    assert_eq!((again.first, again.last, again.is_retry), (Some(0), Some(1), true));
}
