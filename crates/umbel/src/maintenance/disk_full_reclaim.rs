//! Makes room on a full disk out of what lies ready for the log, so that what frees more of it has
//! some: a flush, a compaction, a delete, the drop of a keyspace.

use std::sync::PoisonError;

use umbel_base::{Error, Result};

use crate::names;
use crate::segments;
use crate::store::Store;

/// What is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What no writer has begun.
    Spare,
    /// What the current segment has left, too.
    All,
}

/// Calls `attempt`, and once more after making room where the disk has none and there was some to
/// give back. REQUIRES: no lock is held.
pub fn with_room<T>(
    store: &Store,
    extent: Extent,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    match attempt() {
        Err(Error::Full { .. }) if make(store, extent)? => store.or_reserve_again(attempt()),
        done => done,
    }
}

/// Calls `attempt` after making room, where there was some to give back; `refused` otherwise.
/// REQUIRES: no lock is held.
#[cold]
pub fn make_and<T>(
    store: &Store,
    refused: Result<T>,
    attempt: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if make(store, Extent::All)? { store.or_reserve_again(attempt()) } else { refused }
}

/// Gives back what lies ready for the log, and where nothing did, a segment that is reserved.
/// `false` where there was neither. REQUIRES: no lock is held.
#[cold]
pub fn make(store: &Store, extent: Extent) -> Result<bool> {
    let has_shed = {
        // So that a close waits for it.
        let _tending = store.tending.lock().unwrap_or_else(PoisonError::into_inner);
        if store.poison.is_set() || store.check_open().is_err() {
            return Ok(false);
        }
        let mut state = store.commit_lock();
        let shed = state.wal.shed(extent == Extent::All);
        let shed = shed.map_err(|error| segments::final_unless_full(store, &state.wal, error));
        drop(state);
        let (reusable, has_shed) = shed?;
        if let Some(file) = reusable {
            // What cannot be removed now is removed at the next open.
            let _ = store.options.env.files.remove_file(&names::log(&store.folder, file.id));
        }
        has_shed
    };
    // What is mapped is cut once it is not.
    segments::tend(store)?;
    Ok(has_shed || (extent == Extent::All && store.manifest_lock()?.give_segment()))
}
