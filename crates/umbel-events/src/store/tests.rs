//! Tests of states between two steps of a store, which no integration test can reach.

use std::sync::mpsc;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::Durability;
use umbel_env::Env;
use umbel_sim::Sim;

use super::*;
use crate::index::index_batch::IndexBatch;
use crate::index::view_block::{ViewBlock, ViewHead};
use crate::open::background_thread;
use crate::store::store_close::close_once;
use crate::types::imported_event::ImportedEvent;
use crate::verify::view_verify::{REMEMBERED_VIEWS, ViewVerifier};

/// Upper bound of a wait; a successful wait is far shorter.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// A call that does not return within this time counts as waiting.
const BLOCKED_TIME: Duration = Duration::from_millis(200);

/// Options of a synced store on a simulated disk, without threads.
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

fn submit(store: &Store, number: u8) -> PendingAppend {
    let events = [NewEvent::json(EventId([number; 16]), "Happened", b"{}")];
    let appends = [StreamAppend { stream: "a", expected: ExpectedVersion::Any, events: &events }];
    store.submit(&AppendRequest { appends: &appends, checks: &[] }).expect("submitted")
}

/// Regression: a close overlapped with a thread that was indexing appends, and indexed newer ones.
/// As a result the older stream head replaced the newer one: an acknowledged event left its stream.
#[test]
fn close_waits_for_indexing_thread() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let shared = Arc::clone(store.shared());
    let first = submit(&store, 1);
    // A thread is indexing, and has synced the appends that it found in the queue.
    let driver = shared.index_lock.lock().ignore_poison();
    let queue = match &mut *shared.appender.lock().ignore_poison() {
        Some(appender) => appender.queue.take_groups(u64::MAX),
        None => panic!("the store is open"),
    };
    shared.sync_log().expect("durable");
    let second = submit(&store, 2);
    let (sender, closed) = mpsc::channel();
    let closing = store.clone();
    let close = Box::new(move || sender.send(closing.close()).expect("the receiver exists"));
    let thread = Env::system().threads.spawn("close", close).expect("a thread");
    let early = closed.recv_timeout(BLOCKED_TIME);
    // The indexing thread continues.
    let mut batch = IndexBatch::new(&shared.index);
    for change in queue.iter().flat_map(|queued| queued.changes.iter()) {
        batch.add(&shared.index, &change);
    }
    let put = batch.commit(
        &shared.index,
        &shared.visible.gate.begin_commit().expect("permitted"),
        (&shared.log, queue[0].position),
    );
    drop(driver);
    assert!(early.is_err(), "the close did not wait for the indexing thread: {early:?}, {put:?}");
    put.expect("in the index");
    closed.recv_timeout(WAIT_TIMEOUT).expect("the close returns").expect("closed");
    assert!(thread.join());
    drop((first, second, store, shared));
    let store = Store::open("/events", options(&sim)).expect("opened again");
    let read = store.read("a", Revision::START, Direction::Forwards);
    let ids: Vec<_> = read.map(|event| event.expect("readable").id).collect();
    assert_eq!(ids, [EventId([1; 16]), EventId([2; 16])]);
    assert!(store.verify().expect("verified").damage.is_empty());
}

/// Regression: when no appends were left to index, the background thread called no callbacks,
/// although another thread had made their events visible.
#[test]
fn callbacks_run_after_another_thread_drained_the_queue() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let shared = Arc::clone(store.shared());
    let (sender, called) = mpsc::channel();
    submit(&store, 1).on_acknowledged(move |results| {
        sender.send(results.expect("acknowledged")[0].last).expect("the receiver exists");
    });
    shared.sync_log().expect("durable");
    let applied = match &mut *shared.appender.lock().ignore_poison() {
        Some(appender) => appender.apply_queue(&shared.components),
        None => panic!("the store is open"),
    };
    applied.expect("in the index");
    assert!(called.try_recv().is_err(), "it was not called yet");
    background_thread::start(&shared).expect("a thread");
    shared.background.request_indexing();
    assert_eq!(called.recv_timeout(WAIT_TIMEOUT).expect("it is called"), Some(0));
    store.close().expect("closed");
}

/// Regression: a writer held its locks while it called the waiting callbacks. If a callback dropped
/// the last handle, closing waited for these locks forever.
#[test]
fn append_callback_may_drop_the_last_handle() {
    for durability in [Durability::Synced, Durability::Buffered] {
        let sim = Sim::new(1);
        let options = StoreOptions { durability, ..options(&sim) };
        let store = Store::open("/events", options.clone()).expect("a new store");
        let (sender, closed) = mpsc::channel();
        let last = store.clone();
        let watch = store.watch(&Source::All, move |position| {
            drop(last);
            sender.send(position).expect("the receiver exists");
        });
        let shared = Arc::clone(store.shared());
        drop(store);
        let work = move || {
            let events = [NewEvent::json(EventId([1; 16]), "Happened", b"{}")];
            let stream =
                StreamAppend { stream: "a", expected: ExpectedVersion::Any, events: &events };
            let request = AppendRequest { appends: &[stream], checks: &[] };
            let checked = request.check_metadata().expect("no metadata");
            let task = WriteTask::Append(request, &checked);
            let pending = shared.submit(&task).expect("submitted");
            let _ = pending.wait();
        };
        let thread = Env::system().threads.spawn("append", Box::new(work)).expect("a thread");
        closed.recv_timeout(WAIT_TIMEOUT).expect("the close returns");
        assert!(thread.join());
        drop(watch);
        let store = Store::open("/events", options).expect("opened again");
        assert_eq!(store.read("a", Revision::START, Direction::Forwards).count(), 1);
    }
}

/// Regression: a callback that panicked ended the background thread, and the callbacks that were
/// due with it were never called.
#[test]
fn panicking_callback_does_not_block_other_callbacks() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    submit(&store, 1).on_acknowledged(|_| panic!("a callback of the test"));
    let (sender, called) = mpsc::channel();
    let again = sender.clone();
    submit(&store, 2).on_acknowledged(move |_| sender.send(2).expect("the receiver exists"));
    background_thread::start(store.shared()).expect("a thread");
    store.shared().background.request_indexing();
    assert_eq!(called.recv_timeout(WAIT_TIMEOUT).expect("it is called"), 2);
    submit(&store, 3).on_acknowledged(move |_| again.send(3).expect("the receiver exists"));
    store.shared().background.request_indexing();
    assert_eq!(called.recv_timeout(WAIT_TIMEOUT).expect("the thread is there yet"), 3);
    store.close().expect("closed");
}

/// Regression: a callback on the background thread of one store that dropped another store did not
/// wait for that store's thread.
#[test]
fn background_thread_joins_that_of_a_dropped_store() {
    let (sim, other_sim) = (Sim::new(1), Sim::new(2));
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let other = Store::open("/events", options(&other_sim)).expect("a new store");
    background_thread::start(store.shared()).expect("a thread");
    let (hold, held) = mpsc::channel::<()>();
    let (ended, has_ended) = mpsc::channel();
    let work = move || {
        let _ = held.recv();
        let _ = ended.send(());
    };
    let slow = Env::system().threads.spawn("slow", Box::new(work)).expect("a thread");
    *other.shared().background_thread.lock().ignore_poison() = Some(slow);
    let (sender, closed) = mpsc::channel();
    submit(&store, 1)
        .on_acknowledged(move |_| sender.send(other.close().is_ok()).expect("the receiver exists"));
    store.shared().background.request_indexing();
    let early = closed.recv_timeout(BLOCKED_TIME);
    drop(hold);
    assert!(early.is_err(), "the other store's thread was not waited for");
    assert!(closed.recv_timeout(WAIT_TIMEOUT).expect("the close returns"));
    has_ended.try_recv().expect("its thread has ended");
    store.close().expect("closed");
}

/// Story: the verification compared no entry of a view after the first one whose position is that
/// of no event.
#[test]
fn verification_continues_after_a_damaged_entry_of_a_view() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    for number in 0..9 {
        let event = NewEvent::json(EventId([number; 16]), "Happened", b"{}");
        store.append("cart-1", ExpectedVersion::Any, &[event]).expect("appended");
    }
    store.flush().expect("flushed");
    assert!(store.verify().expect("verified").damage.is_empty());
    let shared = store.shared();
    let keyspace = shared.index.views.keyspace();
    let key = [&[b'h', ViewKind::Category.to_number()][..], b"cart"].concat();
    let head = keyspace.get_with(&key, ViewHead::decode).expect("read").flatten();
    let head = head.expect("the view has a head");
    let (mut block, mut wanted) = (ViewBlock::default(), Vec::new());
    for (number, position) in head.open_block.entries() {
        let is_damaged = [2, 6].contains(&number);
        block.push(number, if is_damaged { position - 8 } else { position });
        wanted.extend(Some(format!("event is at position {position},")).filter(|_| is_damaged));
    }
    let mut value = Vec::new();
    ViewHead { open_block: block, ..head }.encode(&mut value);
    let mut batch = shared.index.db().batch();
    batch.put(keyspace, &key, &value);
    batch.commit(Durability::Buffered).expect("committed");
    let damage = store.verify().expect("verified").damage;
    let texts: Vec<String> = damage.iter().map(ToString::to_string).collect();
    assert_eq!((texts.len(), wanted.len()), (2, 2), "{texts:?}");
    for (text, wanted) in texts.iter().zip(wanted) {
        assert!(text.contains("'$ce-cart'") && text.contains(&wanted), "{wanted}: {text}");
    }
}

/// Story: once the verification had met very many views, it found its place in a view again by a
/// search through its blocks. Damage of a block in the middle ended the check of the view.
#[test]
fn verification_finds_its_place_in_a_damaged_view_among_many() {
    for (others, wanted) in [(1_u8, 2), (5, 1)] {
        let sim = Sim::new(1);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        for round in 0..25_u128 {
            let ids = (0..100).map(|number| EventId((round * 100 + number).to_be_bytes()));
            let events: Vec<_> = ids.map(|id| NewEvent::json(id, "Happened", b"{}")).collect();
            store.append("cart-1", ExpectedVersion::Any, &events).expect("appended");
            for other in 0..others {
                let (stream, kind) = (format!("c{round}.{other}-1"), format!("T{round}.{other}"));
                let id = u128::MAX - 10 * round - u128::from(other);
                let event = NewEvent::json(EventId(id.to_be_bytes()), &kind, b"{}");
                store.append(&stream, ExpectedVersion::Any, &[event]).expect("appended");
            }
        }
        store.flush().expect("flushed");
        let damage = store.verify().expect("verified").damage;
        assert!(damage.is_empty(), "{damage:?}");
        let shared = store.shared();
        let keyspace = shared.index.views.keyspace();
        let category = ViewKind::Category.to_number();
        let key = [&[b'h', category][..], b"cart"].concat();
        let head = keyspace.get_with(&key, ViewHead::decode).expect("read").flatten();
        let head = head.expect("the view has a head");
        let mut block = ViewBlock::default();
        for (number, position) in head.open_block.entries() {
            block.push(number, if number == 2300 { position - 8 } else { position });
        }
        let start = head.start.to_be_bytes();
        let middle = [&[b'b', category][..], &start, &1024_u64.to_be_bytes()].concat();
        assert!(keyspace.get_with(&middle, <[u8]>::len).expect("read").is_some());
        let mut value = Vec::new();
        ViewHead { open_block: block, ..head }.encode(&mut value);
        let mut batch = shared.index.db().batch();
        batch.put(keyspace, &key, &value);
        batch.put(keyspace, &middle, b"damage");
        batch.commit(Durability::Buffered).expect("committed");
        let damage = store.verify().expect("verified").damage;
        // If the state of the view was forgotten before, the check of the view ends at the block.
        assert_eq!(damage.len(), wanted, "{damage:?}");
        let found = damage.iter().all(|error| error.to_string().contains("'$ce-cart'"));
        assert!(found, "{damage:?}");
    }
}

/// A store with this many events in each stream, one of each stream in turn, and with unreadable
/// views of their categories.
fn store_with_unreadable_categories(streams: u8, rounds: u8) -> Store {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    for round in 0..rounds {
        for number in 0..streams {
            let id = EventId([number, round, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let event = NewEvent::json(id, "Happened", b"{}");
            store
                .append(&format!("c{number}-1"), ExpectedVersion::Any, &[event])
                .expect("appended");
        }
    }
    store.flush().expect("flushed");
    let shared = store.shared();
    let mut batch = shared.index.db().batch();
    for number in 0..streams {
        let category = format!("c{number}");
        let key = [&[b'h', ViewKind::Category.to_number()][..], category.as_bytes()].concat();
        batch.put(shared.index.views.keyspace(), &key, b"");
    }
    batch.commit(Durability::Buffered).expect("committed");
    store
}

/// Checks the views of all events, calls `look` after each event, and returns the damage.
fn verify_views(store: &Store, mut look: impl FnMut(&ViewVerifier)) -> Vec<Error> {
    let shared = store.shared();
    let (mut views, mut found) = (ViewVerifier::default(), Vec::new());
    for chunk in shared.log.chunks.all().iter() {
        let (mut cursor, mut offset) = (shared.log.cursor(), chunk.first_offset());
        while let Some((frame, next)) = cursor.frame_and_next(chunk, offset).expect("readable") {
            views.check(shared, &frame, &mut found);
            look(&views);
            offset = next;
        }
    }
    found
}

/// Story: each event of an unreadable view counted as a cached page, so that the verification
/// dropped the pages of all views again and again.
#[test]
fn unreadable_view_counts_as_no_cached_page() {
    let store = store_with_unreadable_categories(1, 20);
    let mut pages = 0;
    let found = verify_views(&store, |views| pages = views.kept().1);
    assert_eq!(found.len(), 1, "{found:?}");
    // One of the type and one of all streams.
    assert_eq!(pages, 2);
}

/// Story: the verification never forgot damaged views, whatever their number was.
#[test]
fn states_of_damaged_views_are_bounded() {
    let store = store_with_unreadable_categories(200, 1);
    let mut views_max = 0;
    let found = verify_views(&store, |views| views_max = views_max.max(views.kept().0));
    assert_eq!(found.len(), 200, "{found:?}");
    // An event can add its category, its type and the view of all streams.
    let bound = 2 * REMEMBERED_VIEWS + 2;
    assert!((REMEMBERED_VIEWS..=bound).contains(&views_max), "{views_max}");
}

/// Replaces the head of a stream in the index by an empty value, which is no head.
fn damage_head(store: &Store, stream: &str) {
    let db = store.shared().index.db();
    let heads = db.existing_keyspace("heads").expect("open").expect("the keyspace of heads");
    let mut batch = db.batch();
    batch.put(&heads, stream, b"");
    batch.commit(Durability::Buffered).expect("committed");
}

/// Story: a redaction counted damage twice if the append of its audit events met the damage: once
/// as an append and once as a redaction.
#[test]
fn redaction_counts_damage_once() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    for number in 1..=3 {
        submit(&store, number).wait().expect("acknowledged");
    }
    let redact = |revision: u64| {
        let events = [("a", revision)];
        store.redact(&Redaction { events: &events, reason: "", user: "" })
    };
    let count = || store.stats().expect("stats").damage_errors;
    redact(0).expect("redacted");
    assert_eq!(count(), 0);
    damage_head(&store, "$redactions");
    let message = redact(1).expect_err("the audit stream is damaged").to_string();
    assert!(message.contains("corruption in"), "{message}");
    assert_eq!(count(), 1);
    damage_head(&store, "a");
    let message = redact(2).expect_err("the stream is damaged").to_string();
    assert!(message.contains("corruption in"), "{message}");
    assert_eq!(count(), 2);
}

#[test]
fn import_counts_damage_once() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    submit(&store, 1).wait().expect("acknowledged");
    damage_head(&store, "a");
    let mut import = store.import().expect("begun");
    let event = NewEvent::json(EventId([2; 16]), "Happened", b"{}");
    let event = ImportedEvent { stream: "a", revision: Some(1), created: None, event };
    let message = import.add(&event).expect_err("the stream is damaged").to_string();
    assert!(message.contains("corruption in"), "{message}");
    import.finish().expect("nothing was added");
    assert_eq!(store.stats().expect("stats").damage_errors, 1);
}

/// Regression: a flush ran during a close, and could use the closed index.
#[test]
fn close_waits_for_running_flush() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    submit(&store, 1).wait().expect("acknowledged");
    let shared = Arc::clone(store.shared());
    // A flush runs.
    let flusher = shared.flush_lock.lock().ignore_poison();
    let (sender, closed) = mpsc::channel();
    let closing = store.clone();
    let close = Box::new(move || sender.send(closing.close()).expect("the receiver exists"));
    let thread = Env::system().threads.spawn("close", close).expect("a thread");
    let early = closed.recv_timeout(BLOCKED_TIME);
    let through = shared.index.durable_through();
    drop(flusher);
    assert!(early.is_err(), "the store was closed during a flush");
    through.expect("the index is open during a flush");
    closed.recv_timeout(WAIT_TIMEOUT).expect("it returns").expect("closed");
    assert!(thread.join());
}

/// Regression: a flush that got its lock after the close would have used the closed index.
#[test]
fn flush_after_close_is_a_no_op() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let shared = Arc::clone(store.shared());
    // A close runs.
    let flusher = shared.flush_lock.lock().ignore_poison();
    let (sender, flushed) = mpsc::channel();
    let flushing = store.clone();
    let flush = Box::new(move || sender.send(flushing.flush()).expect("the receiver exists"));
    let thread = Env::system().threads.spawn("flush", flush).expect("a thread");
    let early = flushed.recv_timeout(BLOCKED_TIME);
    assert!(shared.open_mark.close());
    drop(flusher);
    assert!(early.is_err(), "it did not wait for the lock");
    let refused = flushed.recv_timeout(WAIT_TIMEOUT).expect("it returns");
    assert!(matches!(refused, Err(Error::Store(umbel::Error::Closed))), "{refused:?}");
    assert!(thread.join());
    close_once(&shared, true).expect("closed");
}
