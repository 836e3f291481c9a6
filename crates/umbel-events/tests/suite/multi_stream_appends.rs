//! Appends to several streams at once, tickets, waiting, and bad input.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use umbel_env::{Env, JoinHandle};
use umbel_events::{
    Check, Direction, Durability, Error, Expected, NewEvent, Position, Request, Revision, Store,
    StoreOptions, StreamAppend, Watched, limits,
};
use umbel_sim::Sim;

use super::support::{append, event, id, options, outline, store};

#[test]
fn several_streams_change_together_or_not_at_all() {
    let store = store();
    append(&store, "a", 0..1);
    let (one, two) = ([event(1)], [event(2), event(3)]);
    let appends = |expected| {
        [
            StreamAppend { stream: "a", expected: Expected::Exact(0), events: &one },
            StreamAppend { stream: "b", expected, events: &two },
        ]
    };
    let check = |stream, expected| [Check { stream, expected }];
    let refused = store.append_together(&appends(Expected::Exists), &[]);
    assert!(matches!(refused, Err(Error::WrongExpected { stream, .. }) if stream == "b"));
    let missing = check("c", Expected::Exists);
    let refused = store.append_together(&appends(Expected::NoStream), &missing);
    assert!(matches!(refused, Err(Error::WrongExpected { stream, .. }) if stream == "c"));
    assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)), [(0, id(0))]);
    let good = check("c", Expected::NoStream);
    let done = store.append_together(&appends(Expected::NoStream), &good).expect("appended");
    assert_eq!((done[0].last, done[1].first, done[1].last), (Some(1), Some(0), Some(1)));
    append(&store, "c", 9..10);
    let again = store.append_together(&appends(Expected::NoStream), &good).expect("a retry");
    assert!(again.iter().all(|answer| answer.was_there), "what is checked may have changed since");
    assert_eq!(done[1].position, again[1].position);
    let read = outline(store.read("b", Revision::START, Direction::Forwards));
    assert_eq!(read, [(0, id(2)), (1, id(3))]);
}

/// A refusal named revisions that a power cut took afterwards.
#[test]
fn a_refusal_waits_for_what_it_rests_on() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    let events = [event(0)];
    let appends = [StreamAppend { stream: "a", expected: Expected::NoStream, events: &events }];
    let ticket = store.submit(&Request { appends: &appends, checks: &[] }).expect("submitted");
    assert!(!ticket.is_done());
    let refused = store.append("a", Expected::NoStream, &[event(1)]);
    assert!(matches!(refused, Err(Error::WrongExpected { current: Some(0), .. })), "{refused:?}");
    assert!(ticket.is_done(), "the revision it named is durable");
}

#[test]
fn what_is_submitted_is_seen_when_it_is_acknowledged() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    let called = Arc::new(Mutex::new(Vec::new()));
    let submit = |number: u64, expected| {
        let events = [event(number)];
        let appends = [StreamAppend { stream: "a", expected, events: &events }];
        store.submit(&Request { appends: &appends, checks: &[] })
    };
    let seen = || outline(store.read("a", Revision::START, Direction::Forwards)).len();
    let first = submit(0, Expected::NoStream).expect("submitted");
    for number in 1..5 {
        let expected = Expected::Exact(number - 1);
        let called = Arc::clone(&called);
        let ticket = submit(number, expected).expect("submitted");
        ticket.then(move |answers| {
            let answers = answers.expect("acknowledged");
            called.lock().expect("a lock").push(answers[0].last);
        });
    }
    let retry = submit(2, Expected::Exact(1)).expect("a retry of what nobody sees yet");
    assert!(!retry.is_done());
    assert_eq!((seen(), store.visible()), (0, Position(0)));
    assert_eq!(first.wait().expect("acknowledged")[0].last, Some(0));
    assert_eq!(seen(), 5);
    assert_eq!(*called.lock().expect("a lock"), [Some(1), Some(2), Some(3), Some(4)]);
    assert!(retry.is_done());
    assert!(retry.wait().expect("acknowledged")[0].was_there);
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Box<dyn JoinHandle> {
    Env::system().threads.spawn("test", Box::new(work)).expect("a thread")
}

#[test]
fn whoever_watches_or_waits_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        Store::open(folder.path().join("events"), StoreOptions::default()).expect("a store");
    let seen = Arc::new(AtomicU64::new(0));
    let watch = || {
        let seen = Arc::clone(&seen);
        store.watch(Watched::All, move |position| seen.store(position.0, Ordering::SeqCst))
    };
    let first = watch();
    assert_eq!(first.position(), Position(0));
    let waited = Arc::new(AtomicU64::new(0));
    let waiter = {
        let (store, waited) = (store.clone(), Arc::clone(&waited));
        spawn(move || {
            let seen = store.wait_beyond(Position(0), Duration::from_secs(60));
            waited.store(seen.0, Ordering::SeqCst);
        })
    };
    append(&store, "a", 0..1);
    assert!(waiter.join(), "it waited");
    assert_eq!(Position(waited.load(Ordering::SeqCst)), store.visible());
    assert_eq!(Position(seen.load(Ordering::SeqCst)), store.visible());
    append(&store, "a", 1..2);
    assert!(Position(seen.load(Ordering::SeqCst)) < store.visible(), "it is told once");
    let second = watch();
    assert_eq!(second.position(), store.visible());
    drop(second);
    append(&store, "a", 2..3);
    assert!(Position(seen.load(Ordering::SeqCst)) < store.visible(), "it has gone away");
    let _last = watch();
    seen.store(0, Ordering::SeqCst);
    store.close().expect("closed");
    assert!(seen.load(Ordering::SeqCst) > 0, "a close tells everybody");
}

/// Whoever waited for one stream was called at every append of the store: a thousand subscriptions
/// made each append wake a thousand tasks, of which one at most had something to do.
#[test]
fn an_append_calls_only_those_who_wait_for_its_stream() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let sim = Sim::new(1);
        let store = Store::open("/events", StoreOptions { durability, ..options(&sim) });
        let store = store.expect("a new store");
        let called = Arc::new(Mutex::new(Vec::new()));
        let watch = |watched: Watched<'_>, name: String| {
            let called = Arc::clone(&called);
            store.watch(watched, move |_| called.lock().expect("a lock").push(name))
        };
        let taken = || std::mem::take(&mut *called.lock().expect("a lock"));
        let streams: Vec<_> = (0..1000).map(|number| format!("s-{number}")).collect();
        let _watches: Vec<_> =
            streams.iter().map(|stream| watch(Watched::Stream(stream), stream.clone())).collect();
        append(&store, "other", 0..1);
        append(&store, "$$s-1", 1..2);
        assert!(taken().is_empty(), "nobody waits for these");
        append(&store, "s-7", 2..4);
        assert_eq!(taken(), ["s-7"], "once for an append of two events");
        append(&store, "s-7", 4..5);
        assert!(taken().is_empty(), "it was called");
        let (one, two) = ([event(5)], [event(6)]);
        let expected = Expected::Any;
        let appends = [
            StreamAppend { stream: "s-3", expected, events: &one },
            StreamAppend { stream: "s-4", expected, events: &two },
        ];
        let _all = watch(Watched::All, "all".to_string());
        store.append_together(&appends, &[]).expect("appended");
        let mut both = taken();
        both.sort_unstable();
        assert_eq!(both, ["all", "s-3", "s-4"]);
        store.tombstone("s-9", Expected::Any).expect("ended");
        assert_eq!(taken(), ["s-9"], "its end is an event of the stream");
        store.close().expect("closed");
        assert_eq!(taken().len(), 996, "a close calls everybody else");
    }
}

/// A refusal of any stream waited until everything that anybody had submitted was durable.
#[test]
fn a_refusal_does_not_wait_for_other_streams() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    append(&store, "a", 0..1);
    let events = [event(1)];
    let appends = [StreamAppend { stream: "b", expected: Expected::NoStream, events: &events }];
    let ticket = store.submit(&Request { appends: &appends, checks: &[] }).expect("submitted");
    let refused = store.append("a", Expected::NoStream, &[event(2)]);
    assert!(matches!(refused, Err(Error::WrongExpected { current: Some(0), .. })), "{refused:?}");
    assert!(!ticket.is_done(), "the refusal has nothing to do with it");
    ticket.wait().expect("acknowledged");
}

/// An append without events says what its stream is like. That could come from metadata which a
/// power cut would take, although the answer was given at once.
#[test]
fn an_append_without_events_waits_for_the_metadata_it_rests_on() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    append(&store, "a", 0..1);
    let submit = |stream: &str, expected, events: &[NewEvent<'_>]| {
        let appends = [StreamAppend { stream, expected, events }];
        store.submit(&Request { appends: &appends, checks: &[] }).expect("submitted")
    };
    let metadata = [NewEvent::json(id(1), "$metadata", br#"{"$tb":1}"#)];
    let metadata = submit("$$a", Expected::NoStream, &metadata);
    let nothing = submit("a", Expected::Any, &[]);
    assert!(!nothing.is_done(), "the metadata may be lost yet");
    nothing.wait().expect("acknowledged");
    assert!(metadata.is_done(), "what it rested on is durable");
}

/// A flush held its lock while it called those whose appends it had made visible; one of them
/// appended, came to a chunk that was full, and waited for the flush that was calling it.
#[test]
fn a_callback_may_append_until_the_index_has_to_be_flushed() {
    let sim = Sim::new(1);
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", options).expect("a new store");
    let events = [event(0)];
    let appends = [StreamAppend { stream: "a", expected: Expected::Any, events: &events }];
    let ticket = store.submit(&Request { appends: &appends, checks: &[] }).expect("submitted");
    let appending = store.clone();
    ticket.then(move |answers| {
        answers.expect("acknowledged");
        let large = vec![7; 9000];
        for number in 1..60 {
            let events = [NewEvent::binary(id(number), "Large", &large)];
            appending.append("b", Expected::Any, &events).expect("appended");
        }
    });
    let (sender, done) = mpsc::channel();
    let flushing = store.clone();
    let thread = spawn(move || sender.send(flushing.flush()).expect("somebody listens"));
    let flushed = done.recv_timeout(Duration::from_secs(20)).expect("it does not wait for itself");
    flushed.expect("flushed");
    assert!(thread.join());
    assert!(store.stats().expect("stats").chunks > 2, "the index had to be flushed on the way");
    assert_eq!(outline(store.read("b", Revision::START, Direction::Forwards)).len(), 59);
}

#[test]
fn many_threads_append_and_every_stream_is_whole() {
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
                        let done = store.append("shared", Expected::Any, &events);
                        done.expect("appended");
                        let own = format!("own-{thread}");
                        let expected = match number {
                            0 => Expected::NoStream,
                            number => Expected::Exact(number - 1),
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
fn bad_input_is_told_what_is_wrong() {
    let store = store();
    let long = "n".repeat(limits::STREAM_NAME_BYTES_MAX + 1);
    let large = vec![0; limits::EVENT_BYTES_MAX + 1];
    let said = |stream: &str, event: NewEvent<'_>| {
        let refused = store.append(stream, Expected::Any, &[event]);
        refused.expect_err("refused").to_string()
    };
    for (stream, event, why) in [
        ("", event(1), "0 bytes"),
        (&long, event(1), "1025 bytes"),
        ("$all", event(1), "all streams"),
        ("a", NewEvent { kind: "", ..event(1) }, "type has 0 bytes"),
        ("a", NewEvent { data: &large, ..event(1) }, "may have 8388608"),
        ("$$a", NewEvent { data: b"x", ..event(1) }, "no JSON"),
    ] {
        let said = said(stream, event);
        assert!(said.contains(why), "{said}");
    }
    let said = store.append("a", Expected::Exact(4), &[event(1)]).expect_err("wrong").to_string();
    assert!(said.contains("revision 4 was expected of stream 'a', but it has no events"), "{said}");
    let said = store.delete("never", Expected::Any).expect_err("missing").to_string();
    assert!(said.contains("there is no stream 'never'"), "{said}");
    assert!(store.delete("$$a", Expected::Any).is_err());
    assert_eq!(store.visible(), Position(0), "nothing was written");
}
