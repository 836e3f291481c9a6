//! Tests that a forked child cannot use its parent's handles. Its calls fail at once and change
//! nothing, whichever locks the parent's threads held at the fork.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::test_processes::{in_children_while, in_forked_child, in_own_process};

use crate::state::store::Store;
use crate::{Batch, Db, DbCursor, Durability, Iter, Keyspace, KeyspaceOptions, Options, Snapshot};

fn is_forked<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Forked(_)))
}

fn bytes_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = |path: std::path::PathBuf| std::fs::read(path).unwrap_or_default();
    files.map(|e| (e.file_name().into_string().unwrap(), read(e.path()))).collect()
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// One handle of every kind.
struct Handles {
    db: Db,
    keys: Keyspace,
    /// A dropped keyspace whose tables exist only because readers use them.
    dropped: Keyspace,
    snapshot: Snapshot,
    batch: Batch,
    iter: Iter,
    cursor: DbCursor,
    dropped_cursor: DbCursor,
}

fn handles(db: Db) -> Handles {
    let keys = db.keyspace("keys", KeyspaceOptions::default()).unwrap();
    let dropped = db.keyspace("dropped", KeyspaceOptions::default()).unwrap();
    for number in 0..2000 {
        keys.put(key(number), [7; 100]).unwrap();
        dropped.put(key(number), [8; 100]).unwrap();
    }
    db.flush().unwrap();
    keys.put(b"long", vec![9; (1 << 20) + 1]).unwrap();
    for number in 2000..2100 {
        keys.put(key(number), [7; 100]).unwrap();
    }
    db.sync().unwrap();
    let mut dropped_cursor = dropped.cursor::<&[u8]>(..).unwrap();
    dropped_cursor.seek_to_first().unwrap();
    db.drop_keyspace("dropped").unwrap();
    let mut batch = db.batch();
    batch.put(&keys, b"batch", b"batch");
    batch.delete(&dropped, b"batch");
    let snapshot = db.snapshot();
    batch.expect_unchanged(&keys, key(1), &snapshot);
    let mut iter = keys.iter();
    assert!(iter.next().unwrap().is_ok());
    let mut cursor = keys.cursor::<&[u8]>(..).unwrap();
    cursor.seek_to_first().unwrap();
    Handles { db, keys, dropped, snapshot, batch, iter, cursor, dropped_cursor }
}

fn write_with(handles: &mut Handles) {
    let (db, keys) = (&handles.db, &handles.keys);
    assert!(is_forked(keys.put(b"child", b"child")));
    assert!(is_forked(keys.put(b"child", vec![1; (1 << 20) + 1])));
    assert!(is_forked(keys.delete(key(1))));
    assert!(is_forked(keys.delete_range(key(0), key(1000))));
    assert!(is_forked(keys.delete_range(b"b", b"a")));
    assert!(is_forked(keys.flush()));
    assert!(is_forked(keys.compact(None, None)));
    assert!(is_forked(handles.dropped.flush()) || handles.dropped.flush().is_err());
    assert!(is_forked(handles.batch.try_commit(Durability::Synced)));
    let mut batch = db.batch();
    batch.put(keys, b"long", vec![1; (1 << 20) + 1]);
    assert!(is_forked(batch.commit(None)));
    assert!(is_forked(db.keyspace("keys", None)));
    assert!(is_forked(db.keyspace("new", KeyspaceOptions::default())));
    assert!(is_forked(db.existing_keyspace("keys")));
    assert!(is_forked(db.drop_keyspace("keys")));
    assert!(is_forked(db.sync()));
    assert!(is_forked(db.flush()));
    assert!(is_forked(db.flush_all(&[keys], b"marker")) || db.flush_all(&[keys], b"m").is_err());
    assert!(is_forked(db.verify()));
    assert!(is_forked(db.checkpoint(db.path().join("copy"))));
    assert!(is_forked(db.wait_for_compaction()));
    assert!(is_forked(db.clone().close()));
    assert!(is_forked(db.clone().close()), "it is not the answer of a close");
}

fn read_with(handles: &mut Handles) {
    let (db, keys) = (&handles.db, &handles.keys);
    assert!(is_forked(keys.get(key(1))));
    assert!(is_forked(keys.get_with(key(1), <[u8]>::len)));
    assert!(is_forked(keys.get_into(key(1), &mut Vec::new())));
    assert!(is_forked(keys.contains(key(1))));
    assert!(keys.may_contain(key(1)) && keys.may_contain(b"missing"));
    assert!(is_forked(keys.multi_get(&[key(1), key(2)])));
    assert!(is_forked(keys.get_at(&handles.snapshot, key(1))));
    assert!(is_forked(keys.first()) && is_forked(keys.last_at(&handles.snapshot)));
    assert!(is_forked(keys.iter().next().unwrap()));
    assert!(is_forked(keys.prefix(b"a").next_back().unwrap()));
    assert!(is_forked(keys.range_at::<&[u8]>(&handles.snapshot, ..)));
    assert!(is_forked(keys.cursor::<&[u8]>(..)) && is_forked(keys.cursor_uncached::<&[u8]>(..)));
    assert!(is_forked(handles.cursor.seek_to_first()) && is_forked(handles.cursor.seek(b"a")));
    // A step succeeds or is refused; it does not report the end.
    let mut expected = 1;
    while handles.cursor.next().is_ok() && handles.cursor.valid() && expected < 2100 {
        assert_eq!(handles.cursor.key(), key(expected));
        expected += 1;
    }
    for (number, entry) in (1..2100).zip(&mut handles.iter) {
        match entry {
            Ok((found, value)) => assert_eq!((&found[..], value.len()), (&key(number)[..], 100)),
            Err(error) => assert!(is_forked::<()>(Err(error))),
        }
    }
    while handles.dropped_cursor.next().is_ok() && handles.dropped_cursor.valid() {}
    let _ = (db.stats(), db.keyspaces(), db.advice(), db.is_working(), db.path());
    let _ = (keys.stats(), keys.options(), keys.marker(), keys.is_write_stalled(), keys.name());
    drop((db.snapshot(), handles.snapshot.clone()));
    assert!(!format!("{:?}", handles.cursor).is_empty());
}

/// Takes every lock of a store and calls `then`, like threads of the parent that hold locks at a
/// fork.
fn hold_all_locks(store: &Arc<Store>, then: impl FnOnce()) {
    fn ignore_poison<T>(lock: std::sync::LockResult<MutexGuard<'_, T>>) -> MutexGuard<'_, T> {
        lock.ignore_poison()
    }
    let _closing = ignore_poison(store.close_result.lock());
    let _wal_tasks = ignore_poison(store.wal_task_lock.lock());
    let _commit = store.commit_lock();
    let _manifest = store.manifest_lock().unwrap();
    let _advising = ignore_poison(store.advisor_lock.lock());
    let _keyspaces = store.keyspaces.write().ignore_poison();
    let _queue = ignore_poison(store.commit_queue.lock());
    let _work = store.scheduler_lock();
    let _postponed = ignore_poison(store.fatal_error.postponed.lock());
    let _threads = ignore_poison(store.threads.lock());
    let _pin = ignore_poison(store.pin.lock());
    then();
}

/// A forked child that wrote through its parent's handle erased writes that the parent had synced.
/// The child also waited forever for locks that threads of the parent held at the fork.
#[test]
fn forked_child_cannot_use_or_block_on_handle() {
    in_own_process("api::db_handle::tests::forked_child_cannot_use_or_block_on_handle", || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let options = Options::default();
        let handles = handles(Db::open(&path, options.clone()).unwrap());
        let store = Arc::clone(&handles.keys.handle.store);
        let handles = Cell::new(Some(handles));
        let work = || {
            let mut inherited = handles.take().unwrap();
            write_with(&mut inherited);
            read_with(&mut inherited);
            drop(inherited);
        };
        in_children_while(|then| hold_all_locks(&store, then), || bytes_of(&path), work);
        drop(store);
        let refused = Db::open(&path, options.clone());
        assert!(matches!(refused, Err(Error::Locked(_))), "the child gave up the lock");
        let Handles { db, keys, .. } = handles.take().unwrap();
        keys.put(b"parent", b"went on").unwrap();
        drop(keys);
        db.close().unwrap();
        in_forked_child(|| check_all(&path, &options));
        check_all(&path, &options);
    });
}

fn check_all(path: &Path, options: &Options) {
    let db = Db::open(path, options.clone()).unwrap();
    let keys = db.keyspace("keys", None).unwrap();
    for number in 0..2100 {
        assert_eq!(keys.get(key(number)).unwrap(), Some(vec![7; 100]), "{number}");
    }
    assert_eq!(keys.get(b"parent").unwrap().as_deref(), Some(&b"went on"[..]));
    assert_eq!(keys.get(b"long").unwrap().map(|value| value.len()), Some((1 << 20) + 1));
    assert!(keys.get(b"child").unwrap().is_none() && keys.get(b"batch").unwrap().is_none());
    let report = db.verify().unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    db.close().unwrap();
}
