//! A full disk refuses appends with a clear error. Nothing acknowledged is lost, and once there is
//! space the store continues, if necessary after another open.

use std::time::Duration;

use umbel_events::{
    AppendRequest, Direction, Durability, Error, ExpectedVersion, NewEvent, Position, Revision,
    Store, StoreOptions, StreamAppend,
};
use umbel_sim::{Fault, FaultKind, Sim};

use super::support::{append, id, options, outline};

fn fill(store: &Store, first: u64) -> (u64, Error) {
    let data = vec![7; 3000];
    let mut number = first;
    loop {
        let event = NewEvent::binary(id(number), "Large", &data);
        match store.append("a", ExpectedVersion::Any, &[event]) {
            Ok(_) => number += 1,
            Err(error) => return (number, error),
        }
    }
}

#[test]
fn disk_full_rejects_appends_until_space_is_freed() {
    for durability in [Durability::Buffered, Durability::Synced] {
        for kilobytes in [600, 900, 1400, 2100] {
            let sim = Sim::new(kilobytes);
            let settings = || StoreOptions { durability, ..options(&sim) };
            let store = Store::open("/events", settings()).expect("a new store");
            append(&store, "b", 5000..5001);
            sim.set_capacity(kilobytes << 10);
            let (acknowledged, error) = fill(&store, 0);
            assert!(acknowledged > 10, "{acknowledged}");
            let message = error.to_string();
            assert!(matches!(error, Error::Store(umbel::Error::DiskFull { .. })), "{message}");
            assert!(message.contains("free space"), "{message}");
            let read = outline(store.read("a", Revision::START, Direction::Forwards));
            assert!(read.len() as u64 >= acknowledged, "what was acknowledged is read");
            sim.clear_capacity();
            // The refused append may be there or not; after a retry it is there once.
            let event = NewEvent::binary(id(acknowledged), "Large", b"again");
            let store = match store.append("a", ExpectedVersion::Any, &[event]) {
                Ok(_) => store,
                Err(error) => {
                    let message = error.to_string();
                    assert!(message.contains("open it again"), "{message}");
                    drop(store);
                    let store = Store::open("/events", settings()).expect("opened again");
                    store.append("a", ExpectedVersion::Any, &[event]).expect("appended");
                    store
                }
            };
            let read = outline(store.read("a", Revision::START, Direction::Forwards));
            assert!(read.iter().map(|(_, id)| *id).eq((0..=acknowledged).map(id)));
            assert!(store.verify().expect("verified").damage.is_empty());
            store.close().expect("closed");
            let store = Store::open("/events", settings()).expect("opened again");
            let all = store.read_all(Position::START, Direction::Forwards).count() as u64;
            assert_eq!(all, acknowledged + 2);
        }
    }
}

#[test]
fn failed_sync_rejects_writes_until_reopen() {
    let sim = Sim::new(3);
    let settings = || StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/events", settings()).expect("a new store");
    append(&store, "a", 0..1);
    sim.fail_site("sync *.chunk", 1, Fault { kind: FaultKind::Eio, sticky: false });
    let event = NewEvent::binary(id(1), "t", b"");
    assert!(store.append("a", ExpectedVersion::Any, &[event]).is_err());
    let refused =
        store.append("a", ExpectedVersion::Any, &[event]).expect_err("nothing is written");
    assert!(matches!(refused, Error::Store(umbel::Error::ReadOnly(_))), "{refused}");
    assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)), [(0, id(0))]);
    drop(store);
    let store = Store::open("/events", settings()).expect("opened again");
    store.append("a", ExpectedVersion::Any, &[event]).expect("appended");
    let read = outline(store.read("a", Revision::START, Direction::Forwards));
    assert_eq!(read, [(0, id(0)), (1, id(1))]);
}

/// Regression: a script through the server hit an append that was never answered. If the index
/// could not be written but the log could, the background thread met the failure and reported it to
/// no callback.
#[test]
fn callback_reports_index_failure() {
    let sim = Sim::new(1);
    let durability = Durability::Synced;
    let threaded = StoreOptions { background_threads: 1, durability, ..options(&sim) };
    let store = Store::open("/events", threaded).expect("a new store");
    // Set before the append: the background thread may flush the index at any time.
    sim.fail_site("create *.table", 1, Fault { kind: FaultKind::Eio, sticky: true });
    append(&store, "a", 0..1);
    store.flush().expect_err("the index cannot be flushed");
    let events = [NewEvent::json(id(1), "Happened", b"{}")];
    let appends = [StreamAppend { stream: "a", expected: ExpectedVersion::Any, events: &events }];
    let (sender, results) = std::sync::mpsc::channel();
    match store.submit(&AppendRequest { appends: &appends, checks: &[] }) {
        Ok(ticket) => {
            ticket.on_acknowledged(move |result| sender.send(result).expect("the receiver exists"))
        }
        Err(error) => panic!("the log has no fault: {error}"),
    }
    let result = results.recv_timeout(Duration::from_secs(20)).expect("the callback was called");
    result.expect_err("it is not in the index");
    drop(store);
    sim.heal();
    let store = Store::open("/events", options(&sim)).expect("opened again");
    let done = store.append("a", ExpectedVersion::Any, &events).expect("appended");
    assert_eq!(done.first, Some(1), "it is there once, whether it was there or not");
}
