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
