//! Manual flush of several keyspaces together, in their state at one moment.

use std::sync::Arc;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use crate::maintenance::advisor_job;
use crate::maintenance::flush_job;
use crate::maintenance::memtable_freeze;
use crate::maintenance::memtable_limit;
use crate::maintenance::scheduler::{OLD_SEGMENTS_MAX, run_all_inline, update_write_throttle};
use crate::maintenance::space_reclaim::{self, ReclaimScope};
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;

/// Flushes `keyspaces` together, with one marker for all if `marker` is given. On a full disk it
/// reclaims prepared WAL segments that no writer uses, and part of the reserve.
pub fn flush_together(
    store: &Arc<Store>,
    keyspaces: &[Arc<KeyspaceState>],
    marker: Option<&[u8]>,
) -> Result<()> {
    flush_and_then(store, keyspaces, marker, || Ok(()))
}

/// Flushes a keyspace that is to be compacted next. On a full disk it reclaims all space prepared
/// for the WAL.
pub fn flush_before_compaction(store: &Arc<Store>, keyspace: &Arc<KeyspaceState>) -> Result<()> {
    let flush = || flush_together(store, std::slice::from_ref(keyspace), None);
    space_reclaim::retry_after_reclaim(store, ReclaimScope::All, flush)
}

/// Guard of the keyspaces that a caller flushes, which keeps other threads from flushing them. If
/// the flush panics, for example in a flush precondition of the program, the guard makes the store
/// refuse writes.
struct FlushGuard<'a> {
    store: &'a Arc<Store>,
    ids: Vec<u32>,
}

impl Drop for FlushGuard<'_> {
    fn drop(&mut self) {
        self.store.scheduler_lock().flushing.retain(|id| !self.ids.contains(id));
        if std::thread::panicking() {
            self.store.set_fatal_error(Error::invalid("internal: a flush panicked"));
            self.store.signal();
        }
    }
}

/// Flushes `keyspaces` in their state at one moment, and calls `then` before another thread can
/// flush one of them.
pub fn flush_and_then<R>(
    store: &Arc<Store>,
    keyspaces: &[Arc<KeyspaceState>],
    marker: Option<&[u8]>,
    then: impl FnOnce() -> Result<R>,
) -> Result<R> {
    store.check_writable()?;
    let keyspaces = &*memtable_freeze::with_flush_partners(keyspaces);
    let ids: Vec<u32> = keyspaces.iter().map(|keyspace| keyspace.id).collect();
    claim_keyspaces(store, &ids)?;
    let claim = FlushGuard { store, ids };
    let jobs = memtable_freeze::freeze_all(store, keyspaces, marker);
    let flushed = match jobs.is_empty() {
        true => store.manifest_lock().and_then(|manifest| manifest.check_owned()),
        false => space_reclaim::retry_after_reclaim(store, ReclaimScope::SpareAndReserve, || {
            flush_job::run(store, &jobs)
        }),
    };
    memtable_limit::release_writers(store);
    let result = flushed.map_err(|error| store.set_fatal_error(error)).and_then(|()| then());
    drop(claim);
    keyspaces.iter().for_each(|keyspace| update_write_throttle(store, keyspace));
    store.signal();
    let result = result?;
    advisor_job::advise_after_job(store);
    if store.options.background_threads == 0 {
        run_all_inline(store)?;
    }
    Ok(result)
}

/// Flushes the replayed memtables if their WAL segments would make the next open too slow.
pub fn after_open(store: &Arc<Store>) -> Result<()> {
    let (logs, bytes, _) = store.commit_lock().wal.old_summary();
    if logs > OLD_SEGMENTS_MAX || bytes > store.budget.sizes.buffers {
        let keyspaces = store.keyspaces();
        memtable_freeze::freeze_all(store, &keyspaces, None);
    }
    if store.budget.membership().is_some() {
        // Replayed entries count among the memtables of all stores.
        memtable_limit::enforce_now(store);
    }
    if store.options.background_threads == 0 {
        return run_all_inline(store);
    }
    store.signal();
    Ok(())
}

/// Waits until no thread flushes one of the keyspaces `ids`, and then claims these keyspaces.
fn claim_keyspaces(store: &Store, ids: &[u32]) -> Result<()> {
    let mut state = store.scheduler_lock();
    while state.flushing.iter().any(|id| ids.contains(id)) {
        store.fatal_error.check()?;
        state = store.changed.wait(state).ignore_poison();
    }
    state.check_not_stopped()?;
    state.flushing.extend(ids);
    Ok(())
}
