//! Close of a store.

use std::sync::Arc;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use crate::maintenance::advisor_job;
use crate::maintenance::existence_maintenance;
use crate::maintenance::flush_job::{self, FlushJob};
use crate::maintenance::memtable_freeze;
use crate::maintenance::scheduler::OLD_SEGMENTS_MAX;
use crate::maintenance::shared_memtable_limit;
use crate::maintenance::wal_recycling;
use crate::state::store::Store;
use crate::version::Edit;

/// Bytes of memtables that a clean close leaves in the WAL instead of flushing them.
const CLOSE_FLUSH_BYTES: u64 = 4 << 20;

/// Ends background work, records where the WAL segments end and releases the directory. Only the
/// first call closes the store; every other call waits for it and returns its result. In a forked
/// child the call does nothing.
pub fn close(store: &Arc<Store>) -> Result<()> {
    store.check_process()?;
    let mut outcome = store.close_result.lock().ignore_poison();
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
    store.wal_signal.shut_down();
    store.scheduler_lock().stop = true;
    store.signal();
    let threads = std::mem::take(&mut *store.threads.lock().ignore_poison());
    let joined = threads.into_iter().all(|thread| thread.join());
    if joined {
        wait_for_callers(store);
        wal_recycling::wait_for_callers(store);
    }
    let result = if store.read_only { Ok(()) } else { store.or_reserve_again(finish(store)) };
    shared_memtable_limit::leave(store);
    // Only now may another handle open it, and from now on its files may belong to another store.
    store.context.file_cache.shut_down();
    store.context.obsolete.release_lock();
    store.pin.lock().ignore_poison().take();
    result?;
    if joined { Ok(()) } else { Err(Error::invalid("internal: a background thread panicked")) }
}

/// Waits for work on callers' threads: flushes, compactions, writes of long values and maintenance
/// of existence filters.
fn wait_for_callers(store: &Store) {
    let mut state = store.scheduler_lock();
    while state.compactions
        + state.manual_compactions
        + state.blob_writers
        + state.existence_callers
        > 0
        || !state.flushing.is_empty()
    {
        state = store.changed.wait(state).ignore_poison();
    }
}

/// Whether the WAL has all entries that `jobs` flush.
fn is_in_wal(store: &Store, jobs: &[FlushJob]) -> bool {
    !store.fatal_error.is_set() && jobs.iter().all(|job| job.keyspace.uses_wal())
}

fn finish(store: &Arc<Store>) -> Result<()> {
    store.fatal_error.check()?;
    let mut keyspaces = store.keyspaces();
    let unflushed = keyspaces.iter().filter(|keyspace| keyspace.has_unflushed());
    let unflushed: u64 = unflushed.map(|keyspace| keyspace.memtable_bytes()).sum();
    let (logs, _, _) = store.commit_lock().wal.old_summary();
    if unflushed <= CLOSE_FLUSH_BYTES && logs <= OLD_SEGMENTS_MAX {
        // The next open replays these few from the WAL. Without a WAL they would be lost.
        keyspaces.retain(|keyspace| !keyspace.uses_wal());
    }
    let jobs = memtable_freeze::freeze_all(store, &keyspaces, None);
    if !jobs.is_empty() {
        match flush_job::run(store, &jobs) {
            // The next open replays it from the WAL, which is synced completely below.
            Err(Error::DiskFull { .. }) if is_in_wal(store, &jobs) => {}
            flushed => flushed?,
        }
    }
    let through = store.commit_lock().wal.last_sequence();
    store.group_sync.sync_through(through, &store.counters)?;
    // Where all writes were durable already, nothing checked the WAL.
    store.group_sync.check_present().map_err(|error| store.fatal_error.set(error))?;
    let (mut edits, surplus) = {
        let mut state = store.commit_lock();
        let mut edits = state.wal.seal_edits();
        state.wal.note_sealed(&edits);
        let (ends, surplus) = state.wal.close()?;
        edits.extend(ends);
        edits.push(Edit::LastSequence(state.last_sequence));
        (edits, surplus)
    };
    let mut manifest = store.manifest_lock()?;
    // A writer that made a segment beyond a spare may have dropped the spare before.
    edits.extend(
        store.keyspaces().iter().filter_map(|keyspace| advisor_job::read_stats_edit(keyspace)),
    );
    edits.retain(|edit| manifest.state().is_change(edit));
    manifest.commit(&edits)?;
    wal_recycling::remove(store, surplus);
    manifest.seal()?;
    let last = manifest.state().last_sequence;
    drop(manifest);
    existence_maintenance::close(store, last);
    Ok(())
}
