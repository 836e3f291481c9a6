//! What a forked child may do with an event store of its parent: nothing, at once, and without a
//! trace, whatever the parent's threads held when it was forked.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};

use umbel_env::testing::{in_children_while, in_forked_child, in_own_process};

use super::*;
use crate::{Batch, CopyOptions, StoreOptions};

const NAME: &str = "store::fork_tests::a_child_changes_nothing_and_waits_for_nothing";

fn is_forked<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Store(umbel::Error::Forked(_))))
}

/// The bytes of every file below a folder.
fn bytes_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(bytes_of(&path)),
            false => {
                let bytes = std::fs::read(&path).unwrap();
                found.insert(path.to_string_lossy().into_owned(), bytes);
            }
        }
    }
    found
}

fn append(store: &Store, number: u64) -> Result<Appended> {
    let id = store.new_id().unwrap();
    let data = number.to_le_bytes();
    store.append("cart-1", Expected::Any, &[NewEvent::json(id, "Added", &data)])
}

fn submit(store: &Store) -> Result<Ticket> {
    let events = [NewEvent::json(store.new_id().unwrap(), "Added", b"{}")];
    let appends = [StreamAppend { stream: "cart-2", expected: Expected::Any, events: &events }];
    store.submit(&Request { appends: &appends, checks: &[] })
}

/// Every kind of handle there is.
struct Handles {
    store: Store,
    stream: StreamReader,
    all: AllReader,
    view: ViewReader,
    subscription: Subscription,
    _watch: Watch,
    tickets: Vec<Ticket>,
}

fn handles(store: Store) -> Handles {
    for number in 0..500 {
        append(&store, number).unwrap();
    }
    store.sync().unwrap();
    let mut stream = store.read("cart-1", Revision::START, Direction::Forwards);
    let mut all = store.read_all(Position::START, Direction::Forwards);
    let mut view = store.read_view("$ce-cart", Revision::START, Direction::Forwards, Position::END);
    assert!(stream.next().is_some() && all.next().is_some() && view.next().is_some());
    let mut subscription = store.subscribe(Subscribed::All, Since::Start).unwrap();
    let Batch { events, .. } = subscription.take(10, 10).unwrap();
    assert_eq!(events.len(), 10);
    let _watch = store.watch(Watched::All, |_| ());
    let tickets = vec![submit(&store).unwrap(), submit(&store).unwrap(), submit(&store).unwrap()];
    Handles { store, stream, all, view, subscription, _watch, tickets }
}

fn write_with(handles: &mut Handles) {
    let store = &handles.store;
    assert!(is_forked(append(store, 7)));
    assert!(is_forked(submit(store)));
    let events = [NewEvent::json(store.new_id().unwrap(), "Added", b"{}")];
    let appends = [StreamAppend { stream: "cart-2", expected: Expected::Any, events: &events }];
    let request = Request { appends: &appends, checks: &[] };
    assert!(store.submit_each(&[request, request]).into_iter().all(is_forked));
    assert!(store.try_submit(&request).is_none());
    assert!(is_forked(store.delete("cart-1", Expected::Any)));
    assert!(is_forked(store.tombstone("cart-1", Expected::Any)));
    assert!(is_forked(store.sync()) && is_forked(store.flush()) && is_forked(store.verify()));
    assert!(is_forked(store.scavenge(&ScavengeOptions::default())));
    assert!(is_forked(store.start_scavenge(&ScavengeOptions::default())));
    assert!(is_forked(store.backup(store.path().join("backup"), CopyOptions::default())));
    assert!(is_forked(store.import()));
    assert!(is_forked(store.clone().close()) && is_forked(store.clone().close()));
    let (told, outcome) = mpsc::channel();
    let ticket = handles.tickets.remove(0);
    let is_acknowledged = ticket.is_done();
    ticket.then(move |done| told.send(done).unwrap());
    assert!(is_acknowledged || is_forked(outcome.recv().unwrap()));
    let ticket = handles.tickets.remove(0);
    assert!(ticket.is_done() || is_forked(ticket.wait()));
}

fn read_with(handles: &mut Handles) {
    let store = &handles.store;
    let read = store.read("cart-1", Revision::START, Direction::Forwards).next();
    assert!(is_forked(read.unwrap()));
    assert!(is_forked(store.read_all(Position::START, Direction::Backwards).next().unwrap()));
    assert!(is_forked(handles.stream.next().unwrap()));
    assert!(is_forked(handles.all.next().unwrap()));
    assert!(is_forked(handles.view.next().unwrap()));
    assert!(is_forked(handles.subscription.take(10, 10)));
    assert!(is_forked(store.subscribe(Subscribed::All, Since::End)));
    let mut later = store.subscribe(Subscribed::All, Since::Start).unwrap();
    assert!(is_forked(later.next_batch(10, Duration::from_secs(3600))));
    let filter = EventFilter::stream_prefixes(&["cart"]).unwrap();
    let mut filtered = store.read_filtered(Position::START, Direction::Forwards, filter);
    assert!(is_forked(filtered.next_within(100)));
    assert!(is_forked(store.stream("cart-1")) && is_forked(store.streams("", None, 10)));
    assert!(is_forked(store.view("$ce-cart", Position::END)));
    assert!(is_forked(store.views(ViewKind::Streams, "", None, 10)));
    assert!(is_forked(store.stats()) && is_forked(store.advice()));
    let visible = store.visible();
    assert_eq!(store.wait_beyond(Position::END, Duration::from_secs(3600)), visible);
    let (told, called) = mpsc::channel();
    drop(store.watch(Watched::All, move |position| told.send(position).unwrap()));
    assert_eq!(called.recv(), Ok(visible));
}

/// Takes every lock of a store, as threads of the parent do that a child does not have.
fn hold_everything(shared: &Shared, then: impl FnOnce()) {
    let _flusher = locked(&shared.flusher);
    let _driver = locked(&shared.driver);
    let _appender = locked(&shared.appender);
    let _thread = locked(&shared.thread);
    let _lock = locked(&shared.pin);
    let _table = locked(&shared.log.table);
    let _copying = locked(&shared.log.copying);
    then();
}

/// A child that appended through the store of its parent wrote over events that were acknowledged;
/// and it waited for ever where a thread of the parent had held a lock, or for such a thread.
#[test]
fn a_child_changes_nothing_and_waits_for_nothing() {
    in_own_process(NAME, || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let handles = handles(Store::open(&path, StoreOptions::default()).unwrap());
        let shared = Arc::clone(handles.store.shared());
        let handles = Cell::new(Some(handles));
        let work = || {
            let mut inherited = handles.take().unwrap();
            write_with(&mut inherited);
            read_with(&mut inherited);
            drop(inherited);
        };
        in_children_while(|then| hold_everything(&shared, then), || bytes_of(&path), work);
        drop(shared);
        let refused = Store::open(&path, StoreOptions::default());
        assert!(matches!(refused, Err(Error::Store(umbel::Error::Locked(_)))));
        let Handles { store, tickets, .. } = handles.take().unwrap();
        for ticket in tickets {
            assert_eq!(ticket.wait().unwrap().len(), 1);
        }
        append(&store, 500).unwrap();
        store.close().unwrap();
        in_forked_child(|| check_all(&path));
        check_all(&path);
    });
}

fn check_all(path: &Path) {
    let store = Store::open(path, StoreOptions::default()).unwrap();
    let events = store.read("cart-1", Revision::START, Direction::Forwards);
    let numbers: Vec<Vec<u8>> = events.map(|event| event.unwrap().data.to_vec()).collect();
    let expected: Vec<Vec<u8>> = (0..=500).map(|n: u64| n.to_le_bytes().to_vec()).collect();
    assert_eq!(numbers, expected);
    assert_eq!(store.read("cart-2", Revision::START, Direction::Forwards).count(), 3);
    let report = store.verify().unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    store.close().unwrap();
}

/// The child of a process that scavenges waited for a thread that it does not have.
#[test]
fn a_child_does_not_wait_for_a_scavenge_of_its_parent() {
    in_own_process("store::fork_tests::a_child_does_not_wait_for_a_scavenge_of_its_parent", || {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("events"), StoreOptions::default()).unwrap();
        append(&store, 1).unwrap();
        let scavenge = || store.start_scavenge(&ScavengeOptions::default()).unwrap();
        let scavenge = Cell::new(Some(scavenge()));
        in_forked_child(|| {
            let inherited = scavenge.take().unwrap();
            inherited.stop();
            assert!(inherited.is_done() && inherited.wait_for(Duration::from_secs(3600)));
            let _ = inherited.progress();
            assert!(is_forked(inherited.wait()));
        });
        in_forked_child(|| drop(scavenge.take()));
        assert!(scavenge.take().unwrap().wait().unwrap().is_complete);
        store.close().unwrap();
    });
}
