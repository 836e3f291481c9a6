//! How a store ends.

use std::sync::{Arc, PoisonError};

use umbel_base::{Error, Result};

use crate::advise;
use crate::background::OLD_LOGS_MAX;
use crate::existence_upkeep;
use crate::flush::{self, FlushJob};
use crate::freeze;
use crate::segments;
use crate::sharing;
use crate::store::Store;
use crate::version::Edit;

/// Bytes of memtables that a clean close leaves to the log instead of flushing them.
const CLOSE_FLUSH_BYTES: u64 = 4 << 20;

/// Ends background work, writes down where the logs end and lets go of the folder. Only the first
/// call does anything; every other one waits for it and answers as it does. In a forked child
/// nothing is done.
pub fn close(store: &Arc<Store>) -> Result<()> {
    store.check_process()?;
    let mut outcome = store.close_outcome.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*outcome {
        return known.clone();
    }
    if !store.open.close() {
        return Err(Error::invalid("internal: closing the store panicked"));
    }
    let result = close_once(store);
    *outcome = Some(result.clone());
    result
}

fn close_once(store: &Arc<Store>) -> Result<()> {
    store.keyspaces().iter().for_each(|keyspace| _ = keyspace.open.close());
    store.bell.end();
    store.work_lock().stop = true;
    store.signal();
    let threads =
        std::mem::take(&mut *store.threads.lock().unwrap_or_else(PoisonError::into_inner));
    let whole = threads.into_iter().all(|thread| thread.join());
    if whole {
        wait_for_callers(store);
        segments::wait_for_callers(store);
    }
    let result = if store.read_only { Ok(()) } else { store.or_reserve_again(finish(store)) };
    sharing::leave(store);
    // Only now may somebody else open it, and from now on its files may be another's.
    store.context.descriptors.end();
    store.context.obsolete.end();
    store.pin.lock().unwrap_or_else(PoisonError::into_inner).take();
    result?;
    if whole { Ok(()) } else { Err(Error::invalid("internal: a background thread panicked")) }
}

/// Waits for flushes, compactions, writers of long values and the upkeep of existence filters that
/// run on threads of callers.
fn wait_for_callers(store: &Store) {
    let mut state = store.work_lock();
    while state.compactions + state.callers + state.writers_of_files + state.tending > 0
        || !state.flushing.is_empty()
    {
        state = store.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Whether the log has everything that these jobs flush.
fn is_logged(store: &Store, jobs: &[FlushJob]) -> bool {
    !store.poison.is_set() && jobs.iter().all(|job| job.keyspace.logs())
}

fn finish(store: &Arc<Store>) -> Result<()> {
    store.poison.check()?;
    let mut keyspaces = store.keyspaces();
    let unflushed = keyspaces.iter().filter(|keyspace| keyspace.has_unflushed());
    let unflushed: u64 = unflushed.map(|keyspace| keyspace.memtable_bytes()).sum();
    let (logs, _, _) = store.commit_lock().wal.old_summary();
    if unflushed <= CLOSE_FLUSH_BYTES && logs <= OLD_LOGS_MAX {
        // The next open replays these few from the log. Without a log that would lose them.
        keyspaces.retain(|keyspace| !keyspace.logs());
    }
    let jobs = freeze::freeze_all(store, &keyspaces, None);
    if !jobs.is_empty() {
        match flush::flush(store, &jobs) {
            // The next open replays it from the log, all of which is synced below.
            Err(Error::Full { .. }) if is_logged(store, &jobs) => {}
            flushed => flushed?,
        }
    }
    let through = store.commit_lock().wal.last_sequence();
    store.sync_through(through)?;
    // Where all was durable already, nothing looked at the log.
    store.syncer.check_kept().map_err(|error| store.poison.set(error))?;
    let (mut edits, surplus) = {
        let mut state = store.commit_lock();
        let mut edits = state.wal.ends();
        state.wal.note_ends(&edits);
        let (ends, surplus) = state.wal.close()?;
        edits.extend(ends);
        edits.push(Edit::LastSequence(state.last_sequence));
        (edits, surplus)
    };
    let mut manifest = store.manifest_lock()?;
    // A spare may have been dropped before by whoever made a segment beyond it.
    edits.extend(store.keyspaces().iter().filter_map(|keyspace| advise::edit(keyspace)));
    edits.retain(|edit| manifest.state().is_news(edit));
    manifest.commit(&edits)?;
    segments::remove(store, surplus);
    manifest.seal()?;
    let last = manifest.state().last_sequence;
    drop(manifest);
    existence_upkeep::close(store, last);
    Ok(())
}
