//! Work at the end of a write, after its commit. First full memtables are frozen and the commit
//! lock is released. Then the writer waits for the sync that it requested. Last, background work
//! that became due is begun: WAL tasks and flushes.

use std::sync::{Arc, MutexGuard};

use umbel_base::Result;

use crate::maintenance::memtable_limit;
use crate::maintenance::scheduler;
use crate::maintenance::wal_recycling;
use crate::options::Durability;
use crate::state::store::{CommitState, Store};
use crate::state::write_batch::CommitOutcome;

/// Work that commits leave to [`finish`].
#[derive(Debug, Default)]
#[must_use = "full memtables must be frozen"]
pub struct PostCommit<'a> {
    /// The commit lock; `None` if it was released already.
    pub state: Option<MutexGuard<'a, CommitState>>,
    due: DueWork,
}

/// Background work that became due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct DueWork {
    /// Whether a memtable was frozen and waits for a flush.
    frozen: bool,
    /// Whether the WAL has tasks for `wal_recycling`.
    wal_task: bool,
}

impl PostCommit<'_> {
    /// Freezes full memtables and releases the commit lock. Does nothing if the lock is not held.
    #[inline]
    pub fn release_lock(&mut self, store: &Store) {
        let Some(mut state) = self.state.take() else { return };
        self.freeze(store, &mut state);
        self.due.wal_task |= state.wal.take_task_due();
    }

    /// Freezes full memtables, and further memtables if all together exceed their limit.
    #[inline]
    pub fn freeze(&mut self, store: &Store, state: &mut CommitState) {
        if !state.full.is_empty() {
            self.due.frozen |= freeze_full(state);
        }
        self.due.frozen |= memtable_limit::enforce_if_due(store, state);
    }
}

/// Freezes the memtables that are full. Returns whether any was full.
#[cold]
fn freeze_full(state: &mut CommitState) -> bool {
    let mut frozen = false;
    for keyspace in state.full.drain(..) {
        // Several batches of a group may have named it.
        if keyspace.has_full_memtable() {
            keyspace.super_version.freeze(&keyspace.options());
            frozen = true;
        }
    }
    if frozen {
        state.wal.lift_segment_limit();
    }
    frozen
}

/// Does the work that commits left, and returns the result of the write. A successful write is
/// durable as `durability` says or, if that is `None`, as the store's options say.
///
/// A failed commit can have left work of other batches. A successful commit stays successful, even
/// if flushes or compactions after it fail.
#[inline(always)]
pub fn finish(
    store: &Arc<Store>,
    mut post_commit: PostCommit<'_>,
    committed: Result<CommitOutcome>,
    durability: Option<Durability>,
) -> Result<()> {
    post_commit.release_lock(store);
    let due = post_commit.due;
    if let Ok(outcome) = committed
        && due == DueWork::default()
        && !needs_sync(store, outcome, durability)
    {
        return Ok(());
    }
    sync_and_begin_work(store, due, committed, durability)
}

/// Whether the write waits for a sync.
#[inline]
fn needs_sync(store: &Store, committed: CommitOutcome, durability: Option<Durability>) -> bool {
    // Writes without WAL have nothing to sync: the store's default promises them nothing.
    committed.logged_through != 0
        && durability.unwrap_or(store.options.durability) == Durability::Synced
}

/// Syncs and begins background work. The function is separate, so that the path of most writes
/// stays short.
#[inline(never)]
fn sync_and_begin_work(
    store: &Arc<Store>,
    due: DueWork,
    committed: Result<CommitOutcome>,
    durability: Option<Durability>,
) -> Result<()> {
    let committed = committed.and_then(|outcome| match needs_sync(store, outcome, durability) {
        true => store.group_sync.sync_through(outcome.logged_through, &store.counters),
        false => Ok(()),
    });
    match begin_work(store, due) {
        Err(_) if committed.is_ok() && store.fatal_error.is_set() => Ok(()),
        begun => committed.and(begun),
    }
}

/// Wakes the background threads that do the work, or does the work if the store has no threads.
fn begin_work(store: &Arc<Store>, due: DueWork) -> Result<()> {
    if due.wal_task {
        wal_recycling::run_or_signal(store)?;
    }
    if !due.frozen {
        return Ok(());
    }
    if store.options.background_threads == 0 {
        return match scheduler::run_all_inline(store) {
            // The write is done; the next write retries the work.
            Err(error) if error.is_out_of_descriptors() => Ok(()),
            done => done,
        };
    }
    store.signal();
    Ok(())
}
