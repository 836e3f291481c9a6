//! Frees disk space on a full disk: space prepared for the WAL, replaced edits of the manifest, and
//! tables that range tombstones hide. The space goes to work that frees more disk space: a flush, a
//! compaction, a delete, or the drop of a keyspace.

use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use crate::fs::filenames;
use crate::maintenance::hidden_table_removal::remove_hidden_tables;
use crate::maintenance::wal_recycling;
use crate::state::store::Store;
use crate::version::reserved_space::SEGMENTS;

/// Selects the disk space prepared for the WAL that is reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimScope {
    /// Only prepared segments to which no writer has written.
    Spare,
    /// Also half of the reserved segments.
    SpareAndReserve,
    /// Also the unwritten rest of the current segment, and all reserved segments.
    All,
}

/// Number of attempts after the first: one with the space that no writer needs, and others with the
/// space of reserved segments.
const RETRIES: usize = 3;

/// Calls `attempt`. While the disk is full, reclaims space prepared for the WAL and, if there was
/// any, calls `attempt` again.
/// REQUIRES: the caller holds no lock.
pub fn retry_after_reclaim<T>(
    store: &Store,
    extent: ReclaimScope,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut done = attempt();
    let mut retries = 0;
    while retries < RETRIES
        && matches!(done, Err(Error::DiskFull { .. }))
        && reclaim(store, extent)?
    {
        done = attempt();
        retries += 1;
    }
    if retries == 0 { done } else { store.or_reserve_again(done) }
}

/// Reclaims space prepared for the WAL and, if there was any, calls `attempt`; otherwise returns
/// `refused`.
/// REQUIRES: the caller holds no lock.
#[cold]
pub fn reclaim_and_retry<T>(
    store: &Store,
    refused: Result<T>,
    attempt: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if reclaim(store, ReclaimScope::All)? { store.or_reserve_again(attempt()) } else { refused }
}

/// Reclaims space prepared for the WAL, of replaced edits in the manifest, and of hidden tables. If
/// there is none, reclaims the space of a reserved segment as far as `extent` permits. Returns
/// `false` if nothing was reclaimed.
/// REQUIRES: the caller holds no lock.
#[cold]
pub fn reclaim(store: &Store, extent: ReclaimScope) -> Result<bool> {
    let has_released = {
        // The lock makes a close wait for it.
        let _wal_tasks = store.wal_task_lock.lock().ignore_poison();
        if store.fatal_error.is_set() || store.check_open().is_err() {
            return Ok(false);
        }
        let mut state = store.commit_lock();
        let shed = state.wal.release_spares(extent == ReclaimScope::All);
        let shed = shed.map_err(|error| state.wal.fatal_unless_full(error));
        drop(state);
        let (reusable, has_released) = shed?;
        if let Some(file) = reusable {
            // A file that cannot be removed now is removed at the next open.
            let _ =
                store.options.env.files.remove_file(&filenames::segment(&store.folder, file.id));
        }
        has_released
    };
    // A mapped file is truncated once it is unmapped.
    wal_recycling::run_tasks(store)?;
    let is_any_reclaimed = remove_hidden_tables(store) || has_released;
    // A close waits for this, too. After it the directory may belong to another store.
    let _wal_tasks = store.wal_task_lock.lock().ignore_poison();
    if store.fatal_error.is_set() || store.check_open().is_err() {
        return Ok(is_any_reclaimed);
    }
    let mut manifest = store.manifest_lock()?;
    let is_shorter = manifest.shorten()?;
    let reserve_kept = match extent {
        ReclaimScope::Spare => u64::MAX,
        // The others stay for deletes.
        ReclaimScope::SpareAndReserve => SEGMENTS / 2,
        ReclaimScope::All => 0,
    };
    Ok(is_any_reclaimed || is_shorter || manifest.release_reserved_segment(reserve_kept))
}
