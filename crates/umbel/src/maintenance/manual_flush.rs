//! Flushes that a caller asks for: of several keyspaces together, as they are at one moment.

use std::sync::{Arc, PoisonError};

use umbel_base::{Error, Result};

use crate::advise;
use crate::background::{OLD_LOGS_MAX, run_inline, update_pressure};
use crate::commit;
use crate::flush;
use crate::freeze;
use crate::keyspace_core::KeyspaceCore;
use crate::room::{self, Extent};
use crate::store::Store;

/// Flushes these keyspaces together, with one marker for all where one is given. On a full disk
/// it takes the room of what lies ready for the log as far as no writer uses it.
pub fn flush_together(
    store: &Arc<Store>,
    keyspaces: &[Arc<KeyspaceCore>],
    marker: Option<&[u8]>,
) -> Result<()> {
    flush_then(store, keyspaces, marker, || Ok(()))
}

/// Flushes a keyspace that is to be compacted next. On a full disk it takes all the room that lies
/// ready for the log.
pub fn flush_to_compact(store: &Arc<Store>, keyspace: &Arc<KeyspaceCore>) -> Result<()> {
    let flush = || flush_together(store, std::slice::from_ref(keyspace), None);
    room::with_room(store, Extent::All, flush)
}

/// The keyspaces that a caller flushes; no other thread flushes one of them meanwhile. A flush that
/// panics, as a gate of the program's own may, ends all writing.
struct Claim<'a> {
    store: &'a Arc<Store>,
    ids: Vec<u32>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.store.work_lock().flushing.retain(|id| !self.ids.contains(id));
        if std::thread::panicking() {
            self.store.final_error(Error::invalid("internal: a flush panicked"));
            self.store.signal();
        }
    }
}

/// Flushes these keyspaces as they are at one moment, and calls `then` before anybody else may
/// flush one of them.
pub fn flush_then<R>(
    store: &Arc<Store>,
    keyspaces: &[Arc<KeyspaceCore>],
    marker: Option<&[u8]>,
    then: impl FnOnce() -> Result<R>,
) -> Result<R> {
    store.check_writable()?;
    let keyspaces = &*freeze::with_companions(keyspaces);
    let ids: Vec<u32> = keyspaces.iter().map(|keyspace| keyspace.id).collect();
    begin_flush(store, &ids)?;
    let claim = Claim { store, ids };
    let jobs = freeze::freeze_all(store, keyspaces, marker);
    let flushed = match jobs.is_empty() {
        true => store.manifest_lock().and_then(|manifest| manifest.check_owned()),
        false => room::with_room(store, Extent::Spare, || flush::flush(store, &jobs)),
    };
    commit::weigh_buffers(store);
    let result = flushed.map_err(|error| store.final_error(error)).and_then(|()| then());
    drop(claim);
    keyspaces.iter().for_each(|keyspace| update_pressure(store, keyspace));
    store.signal();
    let result = result?;
    advise::after_work(store);
    if store.options.background_threads == 0 {
        run_inline(store)?;
    }
    Ok(result)
}

/// Flushes what recovery left over where keeping its logs would cost the next open too much.
pub fn after_open(store: &Arc<Store>) -> Result<()> {
    let (logs, bytes, _) = store.commit_lock().wal.old_summary();
    if logs > OLD_LOGS_MAX || bytes > store.budget.sizes.buffers {
        let keyspaces = store.keyspaces();
        freeze::freeze_all(store, &keyspaces, None);
    }
    if store.budget.membership().is_some() {
        // What was replayed counts among the memtables of all stores.
        commit::weigh_now(store);
    }
    if store.options.background_threads == 0 {
        return run_inline(store);
    }
    store.signal();
    Ok(())
}

/// Waits until nobody flushes these keyspaces and then claims them.
fn begin_flush(store: &Store, ids: &[u32]) -> Result<()> {
    let mut state = store.work_lock();
    while state.flushing.iter().any(|id| ids.contains(id)) {
        store.poison.check()?;
        state = store.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    state.check_not_stopped()?;
    state.flushing.extend(ids);
    Ok(())
}
