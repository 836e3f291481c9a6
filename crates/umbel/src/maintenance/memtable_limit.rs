//! Limits the bytes of all memtables together: freezes the fullest memtables above the limit, and
//! stalls writers.

use std::sync::atomic::Ordering;

use crate::maintenance::memory_enforcement;
use crate::maintenance::shared_memtable_limit::{self, MEMTABLES_HARD_FACTOR};
use crate::state::store::{CommitState, Store};

/// Checks the limit of all memtables if enough was written since the last check. Returns whether a
/// memtable was frozen.
#[inline]
pub fn enforce_if_due(store: &Store, state: &mut CommitState) -> bool {
    state.bytes_since_check > state.check_interval_bytes && enforce(store, state)
}

#[cold]
fn enforce(store: &Store, state: &mut CommitState) -> bool {
    let total = store.budget.sizes.buffers;
    state.bytes_since_check = 0;
    let mut frozen = match store.budget.membership() {
        Some(membership) => shared_memtable_limit::enforce_shared(store, membership),
        None => freeze_above(store, total),
    };
    frozen |= freeze_segment_holders(store, state, total);
    memory_enforcement::resize_cache(
        store,
        &memory_enforcement::measure(store, state.wal.mapped_bytes()),
    );
    state.check_interval_bytes = store.budget.check_interval_bytes();
    frozen
}

/// Checks the limit of all memtables now. Returns whether a memtable was frozen.
pub fn enforce_now(store: &Store) -> bool {
    enforce(store, &mut store.commit_lock())
}

/// If all memtables together exceed `total` bytes, freezes the fullest ones until the active
/// memtables take half of `total`. If all memtables exceed the hard limit, writers wait.
fn freeze_above(store: &Store, total: u64) -> bool {
    let bytes = memtable_bytes(store);
    if bytes <= total {
        return false;
    }
    let frozen = memory_enforcement::freeze_fullest(store, total / 2);
    match bytes > total * MEMTABLES_HARD_FACTOR {
        true => shared_memtable_limit::stall_writers(store, || {
            memtable_bytes(store) > total * MEMTABLES_HARD_FACTOR
        }),
        false => store.memtables_full.store(false, Ordering::Release),
    }
    frozen
}

fn memtable_bytes(store: &Store) -> u64 {
    store.keyspaces().iter().map(|keyspace| keyspace.memtable_bytes()).sum()
}

/// If old WAL segments take too much space, freezes the memtables whose entries keep the oldest
/// segment from being dropped.
fn freeze_segment_holders(store: &Store, state: &CommitState, total: u64) -> bool {
    let (_, bytes, Some(oldest)) = state.wal.old_summary() else { return false };
    if bytes <= total {
        return false;
    }
    let mut frozen = false;
    for keyspace in store.keyspaces() {
        let view = keyspace.super_version.load();
        let holds = keyspace.uses_wal() && view.active.first_sequence() <= oldest;
        if holds && !keyspace.dropped.load(Ordering::Relaxed) {
            keyspace.super_version.freeze(&keyspace.options());
            frozen = true;
        }
    }
    frozen
}

/// Releases stalled writers if the memtables are within their hard limit again.
pub fn release_writers(store: &Store) {
    let must_wait = match store.budget.membership() {
        Some(membership) => shared_memtable_limit::must_stall(store, membership),
        None => memtable_bytes(store) > store.budget.sizes.buffers * MEMTABLES_HARD_FACTOR,
    };
    if !must_wait {
        store.memtables_full.store(false, Ordering::Release);
    }
}
