//! Whether writers wait for flushes and compactions, which are behind.

use std::sync::atomic::Ordering;

use crate::keyspace_core::KeyspaceCore;
use crate::store::Store;

/// Frozen memtables of one keyspace at which its writers wait for a flush.
const FROZEN_MAX: usize = 4;

/// Whether a writer has to wait until something was done.
pub fn is_full(store: &Store, keyspace: &KeyspaceCore) -> bool {
    keyspace.view.load().frozen.len() >= FROZEN_MAX
        || keyspace.stopped.load(Ordering::Acquire)
        || store.buffers_full.load(Ordering::Acquire)
}

/// Whether a writer would be held back now, for a moment or until something was done.
pub fn holds_back(store: &Store, keyspace: &KeyspaceCore) -> bool {
    keyspace.delay_per_byte_ns() != 0.0 || is_full(store, keyspace)
}
