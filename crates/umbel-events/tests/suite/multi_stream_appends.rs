//! Appends to several streams at once, pending appends, waits, and invalid input.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use umbel_env::{Env, JoinHandle};
use umbel_events::{
    AppendRequest, Direction, Durability, Error, EventId, ExpectedVersion, ImportedEvent, NewEvent,
    Position, Revision, Source, Store, StoreOptions, StreamAppend, StreamCheck, limits,
    metadata_stream,
};
use umbel_sim::Sim;

use super::support::{append, event, id, options, outline, store};

#[test]
fn multi_stream_append_is_atomic() {
    let store = store();
    append(&store, "a", 0..1);
    let (one, two) = ([event(1)], [event(2), event(3)]);
    let appends = |expected| {
        [
            StreamAppend { stream: "a", expected: ExpectedVersion::Exact(0), events: &one },
            StreamAppend { stream: "b", expected, events: &two },
        ]
    };
    let check = |stream, expected| [StreamCheck { stream, expected }];
    let refused = store.append_streams(&appends(ExpectedVersion::Exists), &[]);
    assert!(matches!(refused, Err(Error::WrongExpectedVersion { stream, .. }) if stream == "b"));
    let missing = check("c", ExpectedVersion::Exists);
    let refused = store.append_streams(&appends(ExpectedVersion::NoStream), &missing);
    assert!(matches!(refused, Err(Error::WrongExpectedVersion { stream, .. }) if stream == "c"));
    assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)), [(0, id(0))]);
    let good = check("c", ExpectedVersion::NoStream);
    let done = store.append_streams(&appends(ExpectedVersion::NoStream), &good).expect("appended");
    assert_eq!((done[0].last, done[1].first, done[1].last), (Some(1), Some(0), Some(1)));
    append(&store, "c", 9..10);
    let again = store.append_streams(&appends(ExpectedVersion::NoStream), &good).expect("a retry");
    assert!(again.iter().all(|result| result.is_retry), "what is checked may have changed since");
    assert_eq!(done[1].position, again[1].position);
    let read = outline(store.read("b", Revision::START, Direction::Forwards));
    assert_eq!(read, [(0, id(2)), (1, id(3))]);
}

/// Regression: a refusal named revisions that a power cut removed afterwards.
#[test]
fn version_conflict_waits_for_the_revisions_it_names() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    let events = [event(0)];
    let appends =
        [StreamAppend { stream: "a", expected: ExpectedVersion::NoStream, events: &events }];
    let ticket =
        store.submit(&AppendRequest { appends: &appends, checks: &[] }).expect("submitted");
    assert!(!ticket.is_acknowledged());
    let refused = store.append("a", ExpectedVersion::NoStream, &[event(1)]);
    assert!(
        matches!(refused, Err(Error::WrongExpectedVersion { current: Some(0), .. })),
        "{refused:?}"
    );
    assert!(ticket.is_acknowledged(), "the revision it named is durable");
}

#[test]
fn submitted_append_is_visible_once_acknowledged() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    let called = Arc::new(Mutex::new(Vec::new()));
    let submit = |number: u64, expected| {
        let events = [event(number)];
        let appends = [StreamAppend { stream: "a", expected, events: &events }];
        store.submit(&AppendRequest { appends: &appends, checks: &[] })
    };
    let seen = || outline(store.read("a", Revision::START, Direction::Forwards)).len();
    let first = submit(0, ExpectedVersion::NoStream).expect("submitted");
    for number in 1..5 {
        let expected = ExpectedVersion::Exact(number - 1);
        let called = Arc::clone(&called);
        let ticket = submit(number, expected).expect("submitted");
        ticket.on_acknowledged(move |results| {
            let results = results.expect("acknowledged");
            called.lock().expect("a lock").push(results[0].last);
        });
    }
    let retry =
        submit(2, ExpectedVersion::Exact(1)).expect("a retry of an append that is not visible yet");
    assert!(!retry.is_acknowledged());
    assert_eq!((seen(), store.visible_position()), (0, Position(0)));
    assert_eq!(first.wait().expect("acknowledged")[0].last, Some(0));
    assert_eq!(seen(), 5);
    assert_eq!(*called.lock().expect("a lock"), [Some(1), Some(2), Some(3), Some(4)]);
    assert!(retry.is_acknowledged());
    assert!(retry.wait().expect("acknowledged")[0].is_retry);
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Box<dyn JoinHandle> {
    Env::system().threads.spawn("test", Box::new(work)).expect("a thread")
}

#[test]
fn watches_and_waits_are_notified() {
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        Store::open(folder.path().join("events"), StoreOptions::default()).expect("a store");
    let seen = Arc::new(AtomicU64::new(0));
    let watch = || {
        let seen = Arc::clone(&seen);
        store.watch(&Source::All, move |position| seen.store(position.0, Ordering::SeqCst))
    };
    let first = watch();
    assert_eq!(first.position(), Position(0));
    let waited = Arc::new(AtomicU64::new(0));
    let waiter = {
        let (store, waited) = (store.clone(), Arc::clone(&waited));
        spawn(move || {
            let seen = store.wait_past(Position(0), Duration::from_secs(60));
            waited.store(seen.0, Ordering::SeqCst);
        })
    };
    append(&store, "a", 0..1);
    assert!(waiter.join(), "it waited");
    assert_eq!(Position(waited.load(Ordering::SeqCst)), store.visible_position());
    assert_eq!(Position(seen.load(Ordering::SeqCst)), store.visible_position());
    append(&store, "a", 1..2);
    assert!(
        Position(seen.load(Ordering::SeqCst)) < store.visible_position(),
        "it is notified once"
    );
    let second = watch();
    assert_eq!(second.position(), store.visible_position());
    drop(second);
    append(&store, "a", 2..3);
    assert!(Position(seen.load(Ordering::SeqCst)) < store.visible_position(), "it was removed");
    let _last = watch();
    seen.store(0, Ordering::SeqCst);
    store.close().expect("closed");
    assert!(seen.load(Ordering::SeqCst) > 0, "a close notifies every watch");
}

/// Regression: a callback for one stream was called at every append of the store. With a thousand
/// subscriptions each append woke a thousand tasks, of which at most one had work.
#[test]
fn append_calls_only_watches_of_its_stream() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let sim = Sim::new(1);
        let store = Store::open("/events", StoreOptions { durability, ..options(&sim) });
        let store = store.expect("a new store");
        let called = Arc::new(Mutex::new(Vec::new()));
        let watch = |watched: &Source, name: String| {
            let called = Arc::clone(&called);
            store.watch(watched, move |_| called.lock().expect("a lock").push(name))
        };
        let taken = || std::mem::take(&mut *called.lock().expect("a lock"));
        let streams: Vec<_> = (0..1000).map(|number| format!("s-{number}")).collect();
        let _watches: Vec<_> = streams
            .iter()
            .map(|stream| watch(&Source::Stream(stream.as_str().into()), stream.clone()))
            .collect();
        append(&store, "other", 0..1);
        append(&store, "$$s-1", 1..2);
        assert!(taken().is_empty(), "no watch waits for these");
        append(&store, "s-7", 2..4);
        assert_eq!(taken(), ["s-7"], "once for an append of two events");
        append(&store, "s-7", 4..5);
        assert!(taken().is_empty(), "it was called");
        let (one, two) = ([event(5)], [event(6)]);
        let expected = ExpectedVersion::Any;
        let appends = [
            StreamAppend { stream: "s-3", expected, events: &one },
            StreamAppend { stream: "s-4", expected, events: &two },
        ];
        let _all = watch(&Source::All, "all".to_string());
        store.append_streams(&appends, &[]).expect("appended");
        let mut both = taken();
        both.sort_unstable();
        assert_eq!(both, ["all", "s-3", "s-4"]);
        store.tombstone("s-9", ExpectedVersion::Any).expect("ended");
        assert_eq!(taken(), ["s-9"], "its end is an event of the stream");
        store.close().expect("closed");
        assert_eq!(taken().len(), 996, "a close calls all others");
    }
}

/// Regression: the refusal of an append to any stream waited until all submitted appends were
/// durable.
#[test]
fn version_conflict_does_not_wait_for_other_streams() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    append(&store, "a", 0..1);
    let events = [event(1)];
    let appends =
        [StreamAppend { stream: "b", expected: ExpectedVersion::NoStream, events: &events }];
    let ticket =
        store.submit(&AppendRequest { appends: &appends, checks: &[] }).expect("submitted");
    let refused = store.append("a", ExpectedVersion::NoStream, &[event(2)]);
    assert!(
        matches!(refused, Err(Error::WrongExpectedVersion { current: Some(0), .. })),
        "{refused:?}"
    );
    assert!(!ticket.is_acknowledged(), "the refusal has nothing to do with it");
    ticket.wait().expect("acknowledged");
}

/// Regression: an append without events returns the state of its stream. The state could depend on
/// metadata that was not durable yet, although the result was returned at once.
#[test]
fn empty_append_waits_for_its_metadata_to_be_durable() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    append(&store, "a", 0..1);
    let submit = |stream: &str, expected, events: &[NewEvent<'_>]| {
        let appends = [StreamAppend { stream, expected, events }];
        store.submit(&AppendRequest { appends: &appends, checks: &[] }).expect("submitted")
    };
    let metadata = [NewEvent::json(id(1), "$metadata", br#"{"$tb":1}"#)];
    let metadata = submit("$$a", ExpectedVersion::NoStream, &metadata);
    let nothing = submit("a", ExpectedVersion::Any, &[]);
    assert!(!nothing.is_acknowledged(), "the metadata is not durable yet");
    nothing.wait().expect("acknowledged");
    assert!(metadata.is_acknowledged(), "what it rested on is durable");
}

/// Regression: a flush held its lock while it called the callbacks of appends that it had made
/// visible. A callback appended, reached a full chunk, and waited for the flush that was calling
/// it.
#[test]
fn callback_may_append_until_the_index_is_flushed() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    let events = [event(0)];
    let appends = [StreamAppend { stream: "a", expected: ExpectedVersion::Any, events: &events }];
    let ticket =
        store.submit(&AppendRequest { appends: &appends, checks: &[] }).expect("submitted");
    let appending = store.clone();
    ticket.on_acknowledged(move |results| {
        results.expect("acknowledged");
        let large = vec![7; 9000];
        for number in 1..60 {
            let events = [NewEvent::binary(id(number), "Large", &large)];
            appending.append("b", ExpectedVersion::Any, &events).expect("appended");
        }
    });
    let (sender, done) = mpsc::channel();
    let flushing = store.clone();
    let thread = spawn(move || sender.send(flushing.flush()).expect("the receiver exists"));
    let flushed = done.recv_timeout(Duration::from_secs(20)).expect("it does not wait for itself");
    flushed.expect("flushed");
    assert!(thread.join());
    assert!(store.stats().expect("stats").chunks > 2, "the index was flushed meanwhile");
    assert_eq!(outline(store.read("b", Revision::START, Direction::Forwards)).len(), 59);
}

#[test]
fn concurrent_appends_keep_every_stream_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    for durability in [Durability::Buffered, Durability::Synced] {
        let path = folder.path().join(format!("{durability:?}"));
        let options = StoreOptions { durability, chunk_bytes: 64 << 10, ..StoreOptions::default() };
        let store = Store::open(&path, options.clone()).expect("a store");
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let store = store.clone();
                spawn(move || {
                    for number in 0..300 {
                        let events = [event(thread * 1000 + number)];
                        let done = store.append("shared", ExpectedVersion::Any, &events);
                        done.expect("appended");
                        let own = format!("own-{thread}");
                        let expected = match number {
                            0 => ExpectedVersion::NoStream,
                            number => ExpectedVersion::Exact(number - 1),
                        };
                        store.append(&own, expected, &events).expect("appended");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| assert!(thread.join(), "no panic"));
        store.close().expect("closed");
        let store = Store::open(&path, options).expect("opened again");
        let shared = outline(store.read("shared", Revision::START, Direction::Forwards));
        assert!(shared.iter().map(|(revision, _)| *revision).eq(0..1200));
        assert!(store.verify().expect("verified").damage.is_empty());
    }
}

#[test]
fn invalid_input_error_names_the_cause() {
    let store = store();
    let long = "n".repeat(limits::STREAM_NAME_BYTES_MAX + 1);
    let large = vec![0; limits::EVENT_BYTES_MAX + 1];
    let message = |stream: &str, event: NewEvent<'_>| {
        let refused = store.append(stream, ExpectedVersion::Any, &[event]);
        refused.expect_err("refused").to_string()
    };
    for (stream, event, why) in [
        ("", event(1), "0 bytes"),
        (&long, event(1), "1025 bytes"),
        ("$all", event(1), "all streams"),
        ("a", NewEvent { kind: "", ..event(1) }, "type has 0 bytes"),
        ("a", NewEvent { data: &large, ..event(1) }, "may have at most 8388608"),
        ("$$a", NewEvent { data: b"x", ..event(1) }, "not JSON"),
    ] {
        let message = message(stream, event);
        assert!(message.contains(why), "{message}");
    }
    let message =
        store.append("a", ExpectedVersion::Exact(4), &[event(1)]).expect_err("wrong").to_string();
    assert!(
        message.contains("revision 4 was expected of stream 'a', but it has no events"),
        "{message}"
    );
    for expected in [ExpectedVersion::Any, ExpectedVersion::NoStream] {
        let message = store.delete("never", expected).expect_err("missing").to_string();
        assert!(message.contains("there is no stream 'never'"), "{message}");
    }
    assert!(store.delete("$$a", ExpectedVersion::Any).is_err());
    assert_eq!(store.visible_position(), Position(0), "nothing was written");
}

/// Imports metadata of a stream, which may be longer than that of a client.
fn import_metadata(store: &Store, stream: &str, id: EventId, metadata: &[u8]) {
    let event = NewEvent::json(id, "$metadata", metadata);
    let stream = &*metadata_stream(stream);
    let mut import = store.import().expect("an import");
    import.add(&ImportedEvent { stream, revision: None, created: None, event }).expect("added");
    import.finish().expect("finished");
}

/// Appends an event to a stream, imports metadata of this many bytes, and deletes the stream.
fn delete_with_metadata(store: &Store, stream: &str, bytes: usize) {
    append(store, stream, 0..1);
    let metadata = format!(r#"{{"x":"{}"}}"#, "x".repeat(bytes - 8));
    import_metadata(store, stream, id(1), metadata.as_bytes());
    store.delete(stream, ExpectedVersion::Any).expect("deleted");
}

/// Regression: an append to deleted streams also writes their metadata, which did not count as part
/// of the append. With 17 streams it made a chunk above `FILE_BYTES_MAX`, and the next open called
/// that chunk corrupt.
#[test]
fn metadata_of_recreated_streams_counts_as_part_of_their_append() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let streams: Vec<String> = (0..17).map(|number| format!("s{number}")).collect();
    for stream in &streams {
        delete_with_metadata(&store, stream, limits::EVENT_BYTES_MAX - 64);
    }
    let before = store.visible_position();
    let events = [event(2)];
    let append = |stream| StreamAppend { stream, expected: ExpectedVersion::Any, events: &events };
    let appends: Vec<_> = streams.iter().map(|stream| append(stream)).collect();
    let error = store.append_streams(&appends, &[]).expect_err("too large");
    // The first metadata that does not fit is the last that was read.
    let Error::UndeleteTooLarge { stream, bytes, max_bytes } = &error else { panic!("{error}") };
    assert_eq!((&**stream, *max_bytes), ("s1", limits::APPEND_BYTES_MAX as u64));
    assert!(*bytes <= *max_bytes + limits::EVENT_BYTES_MAX as u64, "{bytes}");
    assert!(error.to_string().contains("'s1'") && error.to_string().contains("small event"));
    assert_eq!(store.visible_position(), before, "nothing was written");
    for stream in &streams[..3] {
        store.append_streams(&[append(stream)], &[]).expect("alone it fits");
    }
    store.append_streams(&appends[..3], &[]).expect("these exist again");
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("every chunk is valid");
    let report = store.verify().expect("verified");
    assert!(report.damage.is_empty(), "{report:?}");
    assert_eq!(outline(store.read("s2", Revision::START, Direction::Forwards)).len(), 1);
}

/// A delete adds `$tb` to the metadata. The event could exceed the limit of every event.
#[test]
fn delete_keeps_metadata_within_the_limit_of_an_event() {
    let store = store();
    append(&store, "a", 0..1);
    let metadata = |bytes: usize| format!(r#"{{"x":"{}"}}"#, "x".repeat(bytes - 8)).into_bytes();
    let write = |bytes: usize| {
        import_metadata(&store, "a", store.new_id().expect("an id"), &metadata(bytes));
    };
    write(limits::EVENT_BYTES_MAX);
    let error = store.delete("a", ExpectedVersion::Any).expect_err("too large").to_string();
    assert!(error.contains("'a'") && error.contains("shorter metadata"), "{error}");
    write(limits::EVENT_BYTES_MAX - r#","$tb":9223372036854775807"#.len());
    store.delete("a", ExpectedVersion::Any).expect("deleted");
    append(&store, "a", 1..2);
    assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)), [(1, id(1))]);
}
