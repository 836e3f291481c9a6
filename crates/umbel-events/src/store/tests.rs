//! What happens between two steps of a store, where nobody outside can stand.

use std::sync::mpsc;

use umbel::Durability;
use umbel_env::Env;
use umbel_sim::Sim;

use super::*;

/// A wait that ends in good order is far shorter.
const PATIENCE: Duration = Duration::from_secs(20);
/// What does not happen within this time is taken for something that waits.
const WHILE: Duration = Duration::from_millis(200);

/// A synced store on a simulated disk, without threads.
fn options(sim: &Sim) -> StoreOptions {
    StoreOptions {
        durability: Durability::Synced,
        background_threads: 0,
        chunk_bytes: 64 << 10,
        memory_bytes: Some(8 << 20),
        env: sim.env(),
        ..StoreOptions::default()
    }
}

fn submit(store: &Store, number: u8) -> Ticket {
    let events = [NewEvent::json(EventId([number; 16]), "Happened", b"{}")];
    let appends = [StreamAppend { stream: "a", expected: Expected::Any, events: &events }];
    store.submit(&Request { appends: &appends, checks: &[] }).expect("submitted")
}

/// A close met somebody who was putting appends into the index, and put in newer ones; then the
/// older head went over the newer: an acknowledged event left its stream.
#[test]
fn a_close_waits_for_whoever_puts_appends_into_the_index() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let shared = Arc::clone(store.shared());
    let first = submit(&store, 1);
    // Somebody drives, and has come as far as to have made durable what he found in the queue.
    let driver = locked(&shared.driver);
    let queue = match &mut *locked(&shared.appender) {
        Some(appender) => appender.queue.take(),
        None => panic!("the store is open"),
    };
    shared.sync_log().expect("durable");
    let second = submit(&store, 2);
    let (sender, closed) = mpsc::channel();
    let closing = store.clone();
    let close = Box::new(move || sender.send(closing.close()).expect("somebody listens"));
    let thread = Env::system().threads.spawn("close", close).expect("a thread");
    let early = closed.recv_timeout(WHILE);
    // He goes on.
    let mut batch = shared.index.batch();
    for change in queue.iter().flat_map(|queued| queued.changes.iter()) {
        shared.index.add(&mut batch, &change);
    }
    let put = shared.index.commit(&mut batch, (&shared.log, queue[0].position));
    drop(driver);
    assert!(early.is_err(), "the close went past somebody who drives: {early:?}, {put:?}");
    put.expect("in the index");
    closed.recv_timeout(PATIENCE).expect("the close goes on").expect("closed");
    assert!(thread.join());
    drop((first, second, store, shared));
    let store = Store::open("/events", options(&sim)).expect("opened again");
    let read = store.read("a", Revision::START, Direction::Forwards);
    let ids: Vec<_> = read.map(|event| event.expect("readable").id).collect();
    assert_eq!(ids, [EventId([1; 16]), EventId([2; 16])]);
    assert!(store.verify().expect("verified").damage.is_empty());
}

/// Where nothing was left to be put into the index, the thread of the store called nobody, although
/// what somebody waited for had become visible without him.
#[test]
fn whoever_waits_is_called_where_others_have_emptied_the_queue() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let shared = Arc::clone(store.shared());
    let (sender, called) = mpsc::channel();
    submit(&store, 1).then(move |answers| {
        sender.send(answers.expect("acknowledged")[0].last).expect("somebody listens");
    });
    shared.sync_log().expect("durable");
    let applied = match &mut *locked(&shared.appender) {
        Some(appender) => appender.apply_queue(&shared.parts),
        None => panic!("the store is open"),
    };
    applied.expect("in the index");
    assert!(called.try_recv().is_err(), "nobody called it yet");
    background::start(&shared).expect("a thread");
    shared.bell.wants_drive();
    assert_eq!(called.recv_timeout(PATIENCE).expect("it is called"), Some(0));
    store.close().expect("closed");
}

/// Whoever appended held his locks while he called those who waited; where one of them let go of
/// the last handle, closing waited for these locks for ever.
#[test]
fn who_is_told_of_an_append_may_let_go_of_the_last_handle() {
    for durability in [Durability::Synced, Durability::Buffered] {
        let sim = Sim::new(1);
        let options = StoreOptions { durability, ..options(&sim) };
        let store = Store::open("/events", options.clone()).expect("a new store");
        let (sender, closed) = mpsc::channel();
        let last = store.clone();
        let watch = store.watch(Watched::All, move |position| {
            drop(last);
            sender.send(position).expect("somebody listens");
        });
        let shared = Arc::clone(store.shared());
        drop(store);
        let work = move || {
            let events = [NewEvent::json(EventId([1; 16]), "Happened", b"{}")];
            let stream = StreamAppend { stream: "a", expected: Expected::Any, events: &events };
            let request = Request { appends: &[stream], checks: &[] };
            let (_, position) = shared.submit(&Task::Append(request)).expect("submitted");
            let _ = shared.drive(position);
        };
        let thread = Env::system().threads.spawn("append", Box::new(work)).expect("a thread");
        closed.recv_timeout(PATIENCE).expect("the close comes to its end");
        assert!(thread.join());
        drop(watch);
        let store = Store::open("/events", options).expect("opened again");
        assert_eq!(store.read("a", Revision::START, Direction::Forwards).count(), 1);
    }
}

/// A callback that panicked ended the thread of the store, and those that were due with it were
/// never called.
#[test]
fn a_callback_that_panics_keeps_nobody_from_being_called() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    submit(&store, 1).then(|_| panic!("a callback of the test"));
    let (sender, called) = mpsc::channel();
    let again = sender.clone();
    submit(&store, 2).then(move |_| sender.send(2).expect("somebody listens"));
    background::start(store.shared()).expect("a thread");
    store.shared().bell.wants_drive();
    assert_eq!(called.recv_timeout(PATIENCE).expect("it is called"), 2);
    submit(&store, 3).then(move |_| again.send(3).expect("somebody listens"));
    store.shared().bell.wants_drive();
    assert_eq!(called.recv_timeout(PATIENCE).expect("the thread is there yet"), 3);
    store.close().expect("closed");
}

/// A callback on the thread of one store that let go of another did not wait for that one's thread.
#[test]
fn the_thread_of_one_store_waits_for_that_of_another() {
    let (sim, other_sim) = (Sim::new(1), Sim::new(2));
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let other = Store::open("/events", options(&other_sim)).expect("a new store");
    background::start(store.shared()).expect("a thread");
    let (hold, held) = mpsc::channel::<()>();
    let (ended, has_ended) = mpsc::channel();
    let work = move || {
        let _ = held.recv();
        let _ = ended.send(());
    };
    let slow = Env::system().threads.spawn("slow", Box::new(work)).expect("a thread");
    *locked(&other.shared().thread) = Some(slow);
    let (sender, closed) = mpsc::channel();
    submit(&store, 1).then(move |_| sender.send(other.close().is_ok()).expect("somebody listens"));
    store.shared().bell.wants_drive();
    let early = closed.recv_timeout(WHILE);
    drop(hold);
    assert!(early.is_err(), "the other store's thread was not waited for");
    assert!(closed.recv_timeout(PATIENCE).expect("the close goes on"));
    has_ended.try_recv().expect("its thread has ended");
    store.close().expect("closed");
}

/// A flush went on beside a close, and could meet an index that was closed under it.
#[test]
fn a_close_waits_for_whoever_flushes() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    submit(&store, 1).wait().expect("acknowledged");
    let shared = Arc::clone(store.shared());
    // Somebody flushes.
    let flusher = locked(&shared.flusher);
    let (sender, closed) = mpsc::channel();
    let closing = store.clone();
    let close = Box::new(move || sender.send(closing.close()).expect("somebody listens"));
    let thread = Env::system().threads.spawn("close", close).expect("a thread");
    let early = closed.recv_timeout(WHILE);
    let through = shared.index.durable_through();
    drop(flusher);
    assert!(early.is_err(), "the store was closed under whoever flushes");
    through.expect("the index is open as long as anybody flushes it");
    closed.recv_timeout(PATIENCE).expect("it goes on").expect("closed");
    assert!(thread.join());
}

/// One whose turn came after the close would have met the closed index.
#[test]
fn a_flush_whose_turn_comes_after_a_close_does_nothing() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let shared = Arc::clone(store.shared());
    // Somebody closes.
    let flusher = locked(&shared.flusher);
    let (sender, flushed) = mpsc::channel();
    let flushing = store.clone();
    let flush = Box::new(move || sender.send(flushing.flush()).expect("somebody listens"));
    let thread = Env::system().threads.spawn("flush", flush).expect("a thread");
    let early = flushed.recv_timeout(WHILE);
    assert!(shared.open.close());
    drop(flusher);
    assert!(early.is_err(), "it did not wait for its turn");
    let refused = flushed.recv_timeout(PATIENCE).expect("it goes on");
    assert!(matches!(refused, Err(Error::Store(umbel::Error::Closed))), "{refused:?}");
    assert!(thread.join());
    close_once(&shared).expect("closed");
}
