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
    let queue: Vec<_> = match &*locked(&shared.appender) {
        Some(appender) => appender.queue.iter().cloned().collect(),
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
    for change in queue.iter().flat_map(|queued| &queued.changes) {
        shared.index.add(&mut batch, change);
    }
    let put = shared.index.commit(&mut batch, queue[0].position);
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
