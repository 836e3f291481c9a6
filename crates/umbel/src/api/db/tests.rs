//! Tests that inspect a store's internals.

use std::sync::Arc;

use umbel_sim::Sim;

use super::*;
use crate::state::write_batch::{Action, CommitRequest, Condition, WriteBatch};
use crate::write::write_path;

/// A group-commit leader whose own batch was refused dropped the remaining work of the batches that
/// it had committed for other writers. Memtables that those batches had filled were not flushed,
/// and in the end every writer waited forever.
#[test]
fn rejected_leader_flushes_memtables_of_its_group() {
    let env = Sim::new(1).env();
    let options = Options { env, background_threads: 0, ..Options::default() };
    let db = Db::open("/store", options).unwrap();
    let small = KeyspaceOptions { memtable_bytes: 16 << 10, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", small).unwrap();
    let store = &db.handle.store;
    let mut long = WriteBatch::default();
    for index in 0..40u32 {
        long.push(Action::Put, &keyspace.state, &index.to_be_bytes(), &[1; 1000]);
    }
    let other = Arc::new(CommitRequest::new(long, None));
    store.commit_queue.lock().unwrap().push(Arc::clone(&other));
    let mut refused = WriteBatch::default();
    refused.require(
        &keyspace.state,
        &0u32.to_be_bytes(),
        Condition::Value(b"other".to_vec(), None),
    );
    refused.push(Action::Put, &keyspace.state, b"mine", b"");
    let committed = write_path::commit_batch(store, &mut refused, None);
    assert!(matches!(committed, Err(Error::Conflict(_))), "{committed:?}");
    assert!(other.outcome.lock().unwrap().take().unwrap().is_ok());
    let view = keyspace.state.super_version.acquire();
    assert!(view.active.is_empty() && view.frozen.is_empty());
    assert_eq!(view.version.tables().count(), 1, "the memtable was frozen and flushed");
}

/// A group-commit leader that compares a long value commits its group, releases the lock and begins
/// again. The flushes that its first group made due must not be lost.
#[test]
fn comparing_leader_flushes_memtables_of_its_first_group() {
    let env = Sim::new(1).env();
    let inline_value_bytes_max = 100;
    let options =
        Options { env, background_threads: 0, inline_value_bytes_max, ..Options::default() };
    let db = Db::open("/store", options).unwrap();
    let small = KeyspaceOptions { memtable_bytes: 16 << 10, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", small).unwrap();
    keyspace.put("long", [7; 200]).unwrap();
    let store = &db.handle.store;
    let mut long = WriteBatch::default();
    for index in 0..40u32 {
        long.push(Action::Put, &keyspace.state, &index.to_be_bytes(), &[1; 1000]);
    }
    let other = Arc::new(CommitRequest::new(long, None));
    store.commit_queue.lock().unwrap().push(Arc::clone(&other));
    let mut comparing = WriteBatch::default();
    comparing.require(&keyspace.state, b"long", Condition::Value(vec![7; 200], None));
    comparing.push(Action::Put, &keyspace.state, b"mine", b"");
    write_path::commit_batch(store, &mut comparing, None).unwrap();
    assert!(other.outcome.lock().unwrap().take().unwrap().is_ok());
    let view = keyspace.state.super_version.acquire();
    assert_eq!(view.active.memtable.entries(), 1, "the later put alone");
    assert!(view.frozen.is_empty(), "the first group's memtable was flushed");
    assert_eq!(view.version.tables().count(), 1);
}

/// A writer that creates a WAL segment drops earlier spare segments from the manifest. If another
/// thread failed to return such a segment for lack of disk space, the close dropped the segment
/// again and failed.
#[test]
fn close_skips_spare_segment_dropped_concurrently() {
    let env = Sim::new(1).env();
    let log_segment_bytes = 16 << 10;
    let options = Options { env, background_threads: 0, log_segment_bytes, ..Options::default() };
    let db = Db::open("/store", options.clone()).unwrap();
    let keyspace = db.keyspace("k", None).unwrap();
    for index in 0..50u32 {
        keyspace.put(index.to_be_bytes(), [1; 100]).unwrap();
    }
    let surplus = {
        let mut state = db.handle.store.commit_lock();
        let surplus = state.wal.release_idle(0, false).unwrap();
        state.wal.begin_release();
        surplus
    };
    assert_eq!(surplus.spares.len(), 1);
    keyspace.put("k", "v").unwrap();
    db.handle.store.commit_lock().wal.cancel_release(Vec::new(), surplus);
    db.close().unwrap();
    drop(keyspace);
    let db = Db::open("/store", options).unwrap();
    assert_eq!(db.existing_keyspace("k").unwrap().unwrap().iter().count(), 51);
}
