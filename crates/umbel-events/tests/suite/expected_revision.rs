//! The answer table: what each append is told, by the state of its stream and what it expects, the
//! first time and when it is tried again. `docs/event-store.md` shows the same.

use umbel_events::{
    Appended, Direction, Error, Expected, NewEvent, Revision, Store, StreamState, metadata_stream,
};

use super::support::{append, event, id, outline, store};

/// How a stream came to be as it is.
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
    store.append(&metadata_stream(STREAM), Expected::Any, &[event]).expect("metadata");
}

/// A store whose stream has this state. Where it has events, those up to revision 2 have the ids 0
/// to 2.
fn prepared(state: State) -> Store {
    let store = store();
    append(&store, "another", 900..903);
    if !matches!(state, State::Never | State::MetadataOnly) {
        append(&store, STREAM, 0..3);
    }
    match state {
        State::Never | State::Live => {}
        State::Deleted => drop(store.delete(STREAM, Expected::Any).expect("deleted")),
        State::Recreated => {
            store.delete(STREAM, Expected::Any).expect("deleted");
            append(&store, STREAM, 3..5);
        }
        State::Truncated => metadata(&store, r#"{"$tb":2}"#),
        State::MetadataOnly => metadata(&store, r#"{"$maxCount":9}"#),
        State::Tombstoned => drop(store.tombstone(STREAM, Expected::Any).expect("ended")),
    }
    store
}

/// What is told, in short.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Appended(u64, u64),
    There(u64, u64),
    Nothing(Option<u64>),
    Wrong(Option<u64>),
    Deleted,
}

fn told(answer: Result<Appended, Error>) -> Told {
    match answer {
        Ok(Appended { first: Some(first), last: Some(last), was_there, position }) => {
            assert!(position.is_some(), "events have a position");
            if was_there { Told::There(first, last) } else { Told::Appended(first, last) }
        }
        Ok(Appended { last, .. }) => Told::Nothing(last),
        Err(Error::WrongExpected { current, stream, .. }) => {
            assert_eq!(stream, STREAM);
            Told::Wrong(current)
        }
        Err(Error::Deleted { stream }) => {
            assert_eq!(stream, STREAM);
            Told::Deleted
        }
        Err(error) => panic!("{error}"),
    }
}

/// The row of the table for a state: any, no stream, exists, exact, too low, too high.
fn row(state: State) -> [Told; 6] {
    use Told::{Appended as A, Deleted as D, Wrong as W};
    match state {
        State::Never => [A(0, 1), A(0, 1), W(None), W(None), W(None), W(None)],
        State::Live | State::Truncated => {
            [A(3, 4), W(Some(2)), A(3, 4), A(3, 4), W(Some(2)), W(Some(2))]
        }
        State::Deleted => [A(3, 4), A(3, 4), W(Some(2)), A(3, 4), W(Some(2)), W(Some(2))],
        State::Recreated => [A(5, 6), W(Some(4)), A(5, 6), A(5, 6), W(Some(4)), W(Some(4))],
        State::MetadataOnly => [A(0, 1), A(0, 1), A(0, 1), W(None), W(None), W(None)],
        State::Tombstoned => [D, D, D, D, D, D],
    }
}

fn last(state: State) -> u64 {
    if state == State::Recreated { 4 } else { 2 }
}

#[test]
fn every_cell_of_the_table_the_first_time_and_again() {
    for state in STATES {
        let last = last(state);
        let expectations = [
            Expected::Any,
            Expected::NoStream,
            Expected::Exists,
            Expected::Exact(last),
            Expected::Exact(0),
            Expected::Exact(last + 90),
        ];
        for (expected, wanted) in expectations.into_iter().zip(row(state)) {
            let store = prepared(state);
            let events = [event(50), event(51)];
            let first = told(store.append(STREAM, expected, &events));
            assert_eq!(first, wanted, "{state:?}, {expected:?}");
            let again = told(store.append(STREAM, expected, &events));
            let wanted_again = match first {
                Told::Appended(from, to) => Told::There(from, to),
                told => told,
            };
            assert_eq!(again, wanted_again, "{state:?}, {expected:?}, again");
        }
    }
}

#[test]
fn a_late_retry_of_what_is_there_is_known() {
    let answers = |state: State, expected, numbers: &[u64]| {
        let store = prepared(state);
        let events: Vec<_> = numbers.iter().copied().map(event).collect();
        told(store.append(STREAM, expected, &events))
    };
    for state in [State::Live, State::Truncated, State::Recreated] {
        let wrong = || Told::Wrong(Some(last(state)));
        assert_eq!(answers(state, Expected::NoStream, &[0, 1, 2]), Told::There(0, 2), "{state:?}");
        assert_eq!(answers(state, Expected::NoStream, &[0]), Told::There(0, 0), "{state:?}");
        assert_eq!(answers(state, Expected::Exact(0), &[1, 2]), Told::There(1, 2), "{state:?}");
        assert_eq!(answers(state, Expected::Any, &[1, 2]), Told::There(1, 2), "{state:?}");
        assert_eq!(answers(state, Expected::Exists, &[2]), Told::There(2, 2), "{state:?}");
        // The first is there, the second is not: neither a retry nor new.
        assert_eq!(answers(state, Expected::NoStream, &[0, 9]), wrong(), "{state:?}");
        assert_eq!(answers(state, Expected::Exact(0), &[1, 9]), wrong(), "{state:?}");
        assert_eq!(answers(state, Expected::Any, &[1, 9]), wrong(), "{state:?}");
        assert_eq!(answers(state, Expected::Exists, &[1, 9]), wrong(), "{state:?}");
    }
    assert_eq!(answers(State::Deleted, Expected::NoStream, &[0]), Told::Appended(3, 3));
    assert_eq!(answers(State::Deleted, Expected::Exact(0), &[1, 2]), Told::There(1, 2));
    assert_eq!(answers(State::Deleted, Expected::Any, &[1, 2]), Told::There(1, 2));
    assert_eq!(answers(State::Deleted, Expected::Exists, &[1, 2]), Told::Wrong(Some(2)));
}

#[test]
fn nothing_to_append_asks_whether_the_stream_is_as_expected() {
    let answer = |state, expected| told(prepared(state).append(STREAM, expected, &[]));
    assert_eq!(answer(State::Never, Expected::NoStream), Told::Nothing(None));
    assert_eq!(answer(State::Live, Expected::Exact(2)), Told::Nothing(Some(2)));
    assert_eq!(answer(State::Live, Expected::NoStream), Told::Wrong(Some(2)));
    assert_eq!(answer(State::Tombstoned, Expected::Any), Told::Deleted);
}

#[test]
fn deleting_and_ending_streams() {
    let delete = |state, expected| match prepared(state).delete(STREAM, expected) {
        Ok(done) => {
            assert!(done.position.is_some());
            Told::Nothing(done.last)
        }
        wrong => told(wrong),
    };
    for state in [State::Never, State::MetadataOnly] {
        assert_eq!(delete(state, Expected::Any), Told::Wrong(None), "{state:?}");
    }
    for state in [State::Live, State::Truncated, State::Deleted] {
        for expected in [Expected::Any, Expected::Exists, Expected::Exact(2)] {
            assert_eq!(delete(state, expected), Told::Nothing(Some(2)), "{state:?} {expected:?}");
        }
        assert_eq!(delete(state, Expected::Exact(1)), Told::Wrong(Some(2)), "{state:?}");
    }
    assert_eq!(delete(State::Live, Expected::NoStream), Told::Wrong(Some(2)));
    assert_eq!(delete(State::Tombstoned, Expected::Any), Told::Deleted);

    let end = |state, expected| match prepared(state).tombstone(STREAM, expected) {
        Ok(done) => {
            assert!(done.position.is_some());
            Told::Nothing(done.last)
        }
        wrong => told(wrong),
    };
    for expected in [Expected::Any, Expected::NoStream] {
        assert_eq!(end(State::Never, expected), Told::Nothing(None), "{expected:?}");
        assert_eq!(end(State::Deleted, expected), Told::Nothing(Some(2)), "{expected:?}");
    }
    assert_eq!(end(State::Live, Expected::Exact(2)), Told::Nothing(Some(2)));
    assert_eq!(end(State::Live, Expected::Exact(1)), Told::Wrong(Some(2)));
    assert_eq!(end(State::Never, Expected::Exists), Told::Wrong(None));
    assert_eq!(end(State::Tombstoned, Expected::Any), Told::Deleted);
}

#[test]
fn a_stream_that_comes_back_shows_what_is_new_and_keeps_its_other_metadata() {
    let store = prepared(State::Live);
    metadata(&store, r#"{"$acl":{},"color":"red"}"#);
    store.delete(STREAM, Expected::Exact(2)).expect("deleted");
    assert_eq!(outline(store.read(STREAM, Revision::START, Direction::Forwards)), []);
    append(&store, STREAM, 60..62);
    let read = outline(store.read(STREAM, Revision::START, Direction::Forwards));
    assert_eq!(read, [(3, id(60)), (4, id(61))]);
    let kept = store.read(&metadata_stream(STREAM), Revision::END, Direction::Backwards).next();
    let kept = kept.expect("metadata").expect("readable");
    assert_eq!(kept.data, br#"{"$acl":{},"$tb":3,"color":"red"}"#);
}

/// A deletion that was written before the stream had an event says nothing of what came then.
#[test]
fn a_stream_that_was_deleted_before_it_existed_can_be_read_once_it_does() {
    for expected in [Expected::Any, Expected::NoStream] {
        let store = store();
        let deleted = NewEvent::json(id(90), "$metadata", br#"{"$tb":9223372036854775807}"#);
        store.append("$$a", Expected::Any, &[deleted]).expect("metadata alone");
        store.append("a", expected, &[event(0)]).expect("a first event");
        store.append("a", Expected::Exact(0), &[event(1)]).expect("a second one");
        let read = outline(store.read("a", Revision::START, Direction::Forwards));
        assert_eq!(read, [(0, id(0)), (1, id(1))]);
        assert_eq!(store.stream("a").expect("known"), StreamState::Live { first: 0, last: 1 });
        store.delete("a", Expected::Any).expect("deleted now");
        assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)), []);
    }
}

#[test]
fn an_append_with_an_id_twice_is_known_again() {
    let store = store();
    let events = [event(7), event(7)];
    let first = store.append("a", Expected::Any, &events).expect("appended");
    let again = store.append("a", Expected::Any, &events).expect("known again");
    assert_eq!((first.first, first.last), (Some(0), Some(1)));
    assert_eq!((again.first, again.last, again.was_there), (Some(0), Some(1), true));
}
