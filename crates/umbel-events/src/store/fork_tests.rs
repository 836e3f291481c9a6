//! Fork tests. A forked child can do nothing with an event store of its parent. Every call in the
//! child is refused at once and changes nothing, whatever locks the parent's threads held at the
//! fork.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_env::test_processes::{in_children_while, in_forked_child, in_own_process};

use super::*;
use crate::{CopyOptions, StoreOptions, SubscriptionBatch};

const NAME: &str = "store::fork_tests::forked_child_neither_writes_nor_blocks";

fn is_forked<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Store(umbel::Error::Forked(_))))
}

/// Bytes of every file below a directory.
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

fn append(store: &Store, number: u64) -> Result<WriteResult> {
    let id = store.new_id().unwrap();
    let data = number.to_le_bytes();
    store.append("cart-1", ExpectedVersion::Any, &[NewEvent::json(id, "Added", &data)])
}

fn submit(store: &Store) -> Result<PendingAppend> {
    let events = [NewEvent::json(store.new_id().unwrap(), "Added", b"{}")];
    let appends =
        [StreamAppend { stream: "cart-2", expected: ExpectedVersion::Any, events: &events }];
    store.submit(&AppendRequest { appends: &appends, checks: &[] })
}

/// One handle of each kind, which a child inherits.
struct InheritedHandles {
    store: Store,
    stream: StreamReader,
    all: AllReader,
    view: ViewReader,
    subscription: Subscription,
    _watch: Watch,
    tickets: Vec<PendingAppend>,
}

fn handles(store: Store) -> InheritedHandles {
    for number in 0..500 {
        append(&store, number).unwrap();
    }
    store.sync().unwrap();
    let mut stream = store.read("cart-1", Revision::START, Direction::Forwards);
    let mut all = store.read_all(Position::START, Direction::Forwards);
    let mut view = store.read_view("$ce-cart", Revision::START, Direction::Forwards, Position::END);
    assert!(stream.next().is_some() && all.next().is_some() && view.next().is_some());
    let mut subscription = store.subscribe(Source::All, SubscriptionStart::Start).unwrap();
    let SubscriptionBatch { events, .. } = subscription.try_next_batch(10, 10).unwrap();
    assert_eq!(events.len(), 10);
    let _watch = store.watch(&Source::All, |_| ());
    let tickets = vec![submit(&store).unwrap(), submit(&store).unwrap(), submit(&store).unwrap()];
    InheritedHandles { store, stream, all, view, subscription, _watch, tickets }
}

fn write_with(handles: &mut InheritedHandles) {
    let store = &handles.store;
    assert!(is_forked(append(store, 7)));
    assert!(is_forked(submit(store)));
    let events = [NewEvent::json(store.new_id().unwrap(), "Added", b"{}")];
    let appends =
        [StreamAppend { stream: "cart-2", expected: ExpectedVersion::Any, events: &events }];
    let request = AppendRequest { appends: &appends, checks: &[] };
    assert!(store.submit_each(&[request, request]).into_iter().all(is_forked));
    assert!(store.try_submit(&request).is_none());
    assert!(is_forked(store.delete("cart-1", ExpectedVersion::Any)));
    assert!(is_forked(store.tombstone("cart-1", ExpectedVersion::Any)));
    assert!(is_forked(store.sync()) && is_forked(store.flush()) && is_forked(store.verify()));
    assert!(is_forked(store.scavenge(&ScavengeOptions::default())));
    assert!(is_forked(store.start_scavenge(&ScavengeOptions::default())));
    assert!(is_forked(store.backup(store.path().join("backup"), CopyOptions::default())));
    assert!(is_forked(store.import()));
    assert!(is_forked(store.clone().close()) && is_forked(store.clone().close()));
    let (sender, outcome) = mpsc::channel();
    let ticket = handles.tickets.remove(0);
    let is_acknowledged = ticket.is_acknowledged();
    ticket.on_acknowledged(move |done| sender.send(done).unwrap());
    assert!(is_acknowledged || is_forked(outcome.recv().unwrap()));
    let ticket = handles.tickets.remove(0);
    assert!(ticket.is_acknowledged() || is_forked(ticket.wait()));
}

fn read_with(handles: &mut InheritedHandles) {
    let store = &handles.store;
    let read = store.read("cart-1", Revision::START, Direction::Forwards).next();
    assert!(is_forked(read.unwrap()));
    assert!(is_forked(store.read_all(Position::START, Direction::Backwards).next().unwrap()));
    assert!(is_forked(handles.stream.next().unwrap()));
    assert!(is_forked(handles.all.next().unwrap()));
    assert!(is_forked(handles.view.next().unwrap()));
    assert!(is_forked(handles.subscription.try_next_batch(10, 10)));
    assert!(is_forked(store.subscribe(Source::All, SubscriptionStart::End)));
    let mut later = store.subscribe(Source::All, SubscriptionStart::Start).unwrap();
    assert!(is_forked(later.next_batch(10, Duration::from_secs(3600))));
    let filter = EventFilter::stream_prefixes(&["cart"]).unwrap();
    let mut filtered = store.read_filtered(Position::START, Direction::Forwards, filter);
    assert!(is_forked(filtered.next_within(100)));
    assert!(is_forked(store.stream_state("cart-1")) && is_forked(store.streams("", None, 10)));
    assert!(is_forked(store.view("$ce-cart", Position::END)));
    assert!(is_forked(store.views(ViewKind::Streams, "", None, 10)));
    assert!(is_forked(store.stats()) && is_forked(store.filter_advice()));
    let visible = store.visible_position();
    assert_eq!(store.wait_past(Position::END, Duration::from_secs(3600)), visible);
    let (sender, called) = mpsc::channel();
    drop(store.watch(&Source::All, move |position| sender.send(position).unwrap()));
    assert_eq!(called.recv(), Ok(visible));
}

/// Takes every lock of a store, like threads of the parent that a child does not have.
fn lock_everything(shared: &StoreInner, then: impl FnOnce()) {
    let _flusher = shared.flush_lock.lock().ignore_poison();
    let _driver = shared.index_lock.lock().ignore_poison();
    let _appender = shared.appender.lock().ignore_poison();
    let _thread = shared.background_thread.lock().ignore_poison();
    let _lock = shared.pin.lock().ignore_poison();
    let _table = shared.log.manifest.lock().ignore_poison();
    let _copying = shared.log.copy_lock.lock().ignore_poison();
    then();
}

/// Regression: a child that appended through the store of its parent overwrote acknowledged events.
/// The child also waited forever for a lock that a thread of the parent held, or for such a thread.
#[test]
fn forked_child_neither_writes_nor_blocks() {
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
        in_children_while(|then| lock_everything(&shared, then), || bytes_of(&path), work);
        drop(shared);
        let refused = Store::open(&path, StoreOptions::default());
        assert!(matches!(refused, Err(Error::Store(umbel::Error::Locked(_)))));
        let InheritedHandles { store, tickets, .. } = handles.take().unwrap();
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

/// Regression: the child of a scavenging process waited for a thread that it does not have.
#[test]
fn forked_child_does_not_wait_for_parents_scavenge() {
    in_own_process("store::fork_tests::forked_child_does_not_wait_for_parents_scavenge", || {
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
