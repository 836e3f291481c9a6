//! Removes tables that range tombstones hide, on a full disk: no table is written for that.
//!
//! A compaction does the same with its inputs. But a full disk may have no space for the flush of
//! the range tombstone, or for the compactions that bring it to the tables.

use std::collections::HashSet;
use std::sync::Arc;

use umbel_base::Result;

use crate::maintenance::compaction_jobs::compaction_job::{self, CompactionJob};
use crate::maintenance::compaction_jobs::hidden_tables;
use crate::maintenance::job_claim::JobClaim;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::super_version::flush_compaction_inputs::tombstones_of_tables;
use crate::version::LiveTable;

/// Removes the hidden tables of all keyspaces. Returns whether any table was removed. A failure in
/// one keyspace does not end the search: the next attempt of the caller reports a fatal error.
/// REQUIRES: the caller holds no lock.
pub fn remove_hidden_tables(store: &Store) -> bool {
    let mut is_any_removed = false;
    for keyspace in store.keyspaces().iter() {
        is_any_removed |= remove_hidden(store, keyspace).unwrap_or(false);
    }
    is_any_removed
}

fn remove_hidden(store: &Store, keyspace: &Arc<KeyspaceState>) -> Result<bool> {
    let Some((job, _claim)) = claim(store, keyspace)? else { return Ok(false) };
    let removed = compaction_job::remove_inputs(store, &job);
    let files = job.files();
    {
        // The next pick sees the inputs busy or a version without them, never neither.
        let _work = store.scheduler_lock();
        drop(job);
    }
    // Removing files must not happen under a lock.
    drop(files);
    removed.map(|()| true)
}

/// Claims the hidden tables of a keyspace that no compaction reads.
fn claim<'a>(
    store: &'a Store,
    keyspace: &Arc<KeyspaceState>,
) -> Result<Option<(CompactionJob, JobClaim<'a>)>> {
    let view = keyspace.super_version.load();
    let tables: Vec<_> =
        view.version.tables().map(|(level, table)| (level, Arc::clone(table))).collect();
    let mut tombstones = tombstones_of_tables(&tables)?;
    if keyspace.uses_wal() {
        let mut unflushed = Vec::new();
        view.memtables().for_each(|slot| slot.add_fragmented_tombstones(&mut unflushed));
        if !unflushed.is_empty() {
            // The removal is durable at once, so the tombstone must be.
            let through = store.commit_lock().wal.last_sequence();
            store.group_sync.sync_through(through, &store.counters)?;
        }
        tombstones.push_single(unflushed);
    }
    drop(view);
    let hidden = hidden_tables::find(&tables, &tombstones, &store.snapshots.boundaries());
    if hidden.is_empty() {
        return Ok(None);
    }
    let ids: HashSet<u64> = hidden.iter().map(|(_, table)| table.meta.id).collect();
    let mut state = store.scheduler_lock();
    let version = Arc::clone(&keyspace.super_version.load().version);
    let is_idle =
        |(_, table): &(usize, &Arc<LiveTable>)| ids.contains(&table.meta.id) && !table.is_busy();
    let idle = version.tables().filter(is_idle);
    let idle: Vec<_> = idle.map(|(level, table)| (level, Arc::clone(table))).collect();
    if idle.is_empty() || state.stop {
        return Ok(None);
    }
    state.manual_compactions += 1;
    let job = compaction_job::claim_inputs(keyspace, idle);
    Ok(Some((job, JobClaim { store, flushing: Vec::new(), by_caller: true })))
}
