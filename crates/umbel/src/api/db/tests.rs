//! Tests of a store that look behind its handles.

use std::sync::Arc;

use umbel_sim::Sim;

use super::*;
use crate::commit::{self, Aftermath};
use crate::writes::{Action, Condition, Request, Writes};

/// Whoever commits for others and is himself refused forgot what they had left to do: memtables
/// that they had filled were not flushed, and in the end every writer waited for ever.
#[test]
fn a_refused_leader_sees_to_what_the_others_left() {
    let env = Sim::new(1).env();
    let options = Options { env, background_threads: 0, ..Options::default() };
    let db = Db::open("/store", options).unwrap();
    let small = KeyspaceOptions { memtable_bytes: 16 << 10, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", small).unwrap();
    let store = &db.handle.store;
    let mut long = Writes::default();
    for index in 0..40u32 {
        long.push(Action::Put, &keyspace.core, &index.to_be_bytes(), &[1; 1000]);
    }
    let other = Arc::new(Request::new(long, None));
    store.queue.lock().unwrap().push(Arc::clone(&other));
    let mut refused = Writes::default();
    refused.require(&keyspace.core, &0u32.to_be_bytes(), Condition::Value(b"other".to_vec(), None));
    refused.push(Action::Put, &keyspace.core, b"mine", b"");
    let mut aftermath = Aftermath::default();
    let committed = commit::commit(store, &mut refused, None, &mut aftermath);
    assert!(matches!(committed, Err(Error::Conflict(_))), "{committed:?}");
    assert!(other.outcome.lock().unwrap().take().unwrap().is_ok());
    assert!(aftermath.frozen);
}

/// A writer who makes a segment drops the spare ones before it from the manifest. Where somebody
/// was about to give one of them back and found no room for that, it was dropped once more when the
/// store was closed, which failed.
#[test]
fn a_spare_segment_that_was_dropped_meanwhile_is_not_dropped_again_by_a_close() {
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
        let surplus = state.wal.rest(0).unwrap();
        state.wal.give_back();
        surplus
    };
    assert_eq!(surplus.spares.len(), 1);
    keyspace.put("k", "v").unwrap();
    db.handle.store.commit_lock().wal.keep(Vec::new(), surplus);
    db.close().unwrap();
    drop(keyspace);
    let db = Db::open("/store", options).unwrap();
    assert_eq!(db.existing_keyspace("k").unwrap().unwrap().iter().count(), 51);
}
