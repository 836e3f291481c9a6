//! Backups of a store on a real disk while threads append to it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use umbel::Env;
use umbel_events::{
    CopyOptions, Durability, EventId, ExpectedVersion, NewEvent, RecordedEvent, Store,
    StoreOptions, restore, verify_backup,
};

use super::support::{all, id};

const THREADS: u64 = 4;

/// Appends until `stop` is set, and records the acknowledged events.
fn append_on(store: &Store, thread: u64, stop: &AtomicBool, done: &Mutex<Vec<EventId>>) {
    let data = vec![b'x'; 700];
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let id = id(thread << 40 | number);
        let event = NewEvent::binary(id, "Counted", &data);
        let stream = format!("stream-{thread}-{}", number % 5);
        store.append(&stream, ExpectedVersion::Any, &[event]).expect("appended");
        done.lock().expect("no panic").push(id);
    }
}

fn restored(backup: &Path, target: &Path) -> Vec<RecordedEvent> {
    restore(&Env::system(), backup, target, CopyOptions::default()).expect("restored");
    let store = Store::open(target, StoreOptions::default()).expect("opened");
    let report = store.verify().expect("verified");
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let events = all(&store);
    store.close().expect("closed");
    events
}

fn back_up_under_load(durability: Durability) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let shape = StoreOptions { durability, chunk_bytes: 256 << 10, ..StoreOptions::default() };
    let store = Store::open(path("store"), shape).expect("a new store");
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let started = AtomicU64::new(0);
    let mut backups = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, stop, done) = (&store, &stop, &done);
            let started = &started;
            scope.spawn(move || {
                started.fetch_add(1, Ordering::Relaxed);
                append_on(store, thread, stop, done);
            });
        }
        let wanted = |events: usize| {
            while done.lock().expect("no panic").len() < events {
                std::thread::yield_now();
            }
        };
        for round in 1..=6 {
            wanted(round * 150);
            let before = done.lock().expect("no panic").clone();
            let report = store.backup(path("backup"), CopyOptions::default()).expect("backed up");
            let events = restored(&path("backup"), &path(&format!("restored-{round}")));
            assert_eq!(events.last().map(|event| event.position), Some(report.through.0));
            let ids: HashSet<_> = events.iter().map(|event| event.id).collect();
            let missing = before.iter().filter(|id| !ids.contains(id)).count();
            assert_eq!(missing, 0, "round {round}: all that was acknowledged before is there");
            backups.push((report, events));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let everything = all(&store);
    for (report, events) in &backups {
        assert_eq!(events[..], everything[..events.len()], "a prefix: {report:?}");
    }
    let copied: u64 = backups.iter().map(|(report, _)| report.copied_bytes).sum();
    let (last, _) = backups.last().expect("several");
    assert_eq!(copied, last.bytes, "every byte was copied once");
    assert!(last.files > 2, "{last:?}");
    let checked = verify_backup(&Env::system(), &path("backup"), CopyOptions::default());
    assert!(checked.expect("checked").damage.is_empty());
    store.close().expect("closed");
}

#[test]
fn backup_under_load_is_a_prefix_with_all_acknowledged_events() {
    back_up_under_load(Durability::Buffered);
    back_up_under_load(Durability::Synced);
}
