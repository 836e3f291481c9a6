//! Manual compaction, and waiting for due compactions.

use std::sync::Arc;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Result, SequenceNumber};

use crate::compaction::bottommost_picker::{LAST_LEVEL, ResumeKey, RewriteReason};
use crate::maintenance::compaction_jobs::compaction_job::{self, JobPick};
use crate::maintenance::compaction_jobs::picker_input;
use crate::maintenance::manual_flush;
use crate::maintenance::scheduler::{self, Job};
use crate::maintenance::wal_recycling;
use crate::shared_budget::{JobSlot, SLOT_RETRY_INTERVAL};
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::thread_counters::read;

/// The work that was due at one moment. A wait for this work ends even if a writer never pauses.
struct DrainTarget {
    /// Visible sequence number at that moment. While it does not change, the wait covers all work.
    visible: SequenceNumber,
    /// Sequence number of the newest write in frozen memtables, for each keyspace that had some.
    frozen: Vec<(Arc<KeyspaceState>, SequenceNumber)>,
    /// Value of the counter of compacted bytes at which the compaction debt of that moment is done.
    bytes_compacted: u64,
}

impl DrainTarget {
    fn now(store: &Store) -> DrainTarget {
        let visible = store.snapshots.visible();
        let mut bytes_compacted = read(&store.counters.bytes_compacted);
        let mut frozen = Vec::new();
        for keyspace in store.keyspaces() {
            let view = keyspace.super_version.acquire();
            bytes_compacted = bytes_compacted.saturating_add(picker_input::debt_bytes(&keyspace));
            if let Some(newest) = view.frozen.first() {
                frozen.push((keyspace, newest.last_sequence()));
            }
        }
        DrainTarget { visible, frozen, bytes_compacted }
    }

    /// Whether the work that was due is done, even if more work became due since.
    fn is_reached(&self, store: &Store) -> bool {
        let flushed = |(keyspace, newest): &(Arc<KeyspaceState>, SequenceNumber)| {
            let view = keyspace.super_version.load();
            view.frozen.last().is_none_or(|oldest| oldest.first_sequence() > *newest)
        };
        store.snapshots.visible() != self.visible
            && read(&store.counters.bytes_compacted) >= self.bytes_compacted
            && self.frozen.iter().all(flushed)
    }
}

/// While this request exists, garbage is compacted without waiting for a time without writes.
struct DrainRequest<'a>(&'a Store);

impl<'a> DrainRequest<'a> {
    fn new(store: &'a Store) -> DrainRequest<'a> {
        let mut state = store.scheduler_lock();
        state.garbage.drain_requests += 1;
        state.disk_full_backoff.retry_all();
        DrainRequest(store)
    }
}

impl Drop for DrainRequest<'_> {
    fn drop(&mut self) {
        self.0.scheduler_lock().garbage.drain_requests -= 1;
    }
}

/// Waits until there is nothing to flush or compact. While writers write, it waits only until the
/// work that was due at the call is done.
pub fn drain(store: &Arc<Store>) -> Result<()> {
    store.check_writable()?;
    // Work that waits for a quiet period is wanted now.
    let _wish = DrainRequest::new(store);
    let due = DrainTarget::now(store);
    if store.options.background_threads == 0 {
        while !due.is_reached(store) && scheduler::run_next_job(store)? {}
        return Ok(());
    }
    loop {
        store.fatal_error.check()?;
        store.check_open()?;
        let keyspaces = store.keyspaces();
        let mut state = store.scheduler_lock();
        if due.is_reached(store) {
            return Ok(());
        }
        let quiet = state.flushing.is_empty() && state.compactions + state.manual_compactions == 0;
        if quiet {
            match scheduler::find_job(store, &keyspaces, &mut state) {
                // Stores that share the budget work first.
                None if state.waits_for_slot => {}
                None => {
                    let postponed = state.disk_full_backoff.reason().cloned();
                    drop(state);
                    return postponed.map_or_else(|| wal_recycling::release_idle(store), Err);
                }
                // Leave it to the threads: undo the claim and wake one.
                Some((Job::Flush(job, _), _)) => {
                    state.flushing.retain(|id| !job.claimed.contains(id))
                }
                Some(_) => state.compactions -= 1,
            }
            state.ticks += 1;
            store.changed.notify_all();
        }
        if state.waits_for_slot {
            drop(store.changed.wait_timeout(state, SLOT_RETRY_INTERVAL));
        } else {
            drop(store.changed.wait(state).ignore_poison());
        }
    }
}

/// Compacts all tables that overlap the range down to the last level. In the last level, rewrites
/// tables with garbage that no reader can see any more, and joins small neighbours.
pub fn compact_range(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceState>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<()> {
    manual_flush::flush_before_compaction(store, keyspace)?;
    for level in 0..LAST_LEVEL {
        while run_next(store, || compaction_job::pick_range(keyspace, level, start, end))?.is_some()
        {
        }
    }
    let readers = store.snapshots.boundaries();
    rewrite_bottommost(store, keyspace, RewriteReason::Stale(&readers), (start, end))?;
    rewrite_bottommost(store, keyspace, RewriteReason::Small, (start, end))
}

/// Iterates once over the range in the last level, and rewrites the tables to which the reason
/// `wanted` applies.
fn rewrite_bottommost(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceState>,
    wanted: RewriteReason<'_>,
    range: (Option<&[u8]>, Option<&[u8]>),
) -> Result<()> {
    let tables = || keyspace.super_version.load().version.levels[LAST_LEVEL].len();
    let mut resume_after: ResumeKey = None;
    loop {
        let before = tables();
        let done = run_next(store, || {
            compaction_job::pick_bottommost(keyspace, wanted, range, &resume_after)
        })?;
        let Some(end) = done else { return Ok(()) };
        // A joined table may be joined with one more. Never twice where nothing changed, so that
        // the iteration ends.
        if wanted != RewriteReason::Small || tables() >= before {
            resume_after = end;
        }
    }
}

/// Waits until the compaction that `pick` returns can run, runs it and returns the end of its keys.
/// Returns `None` if nothing is left to pick.
fn run_next(store: &Arc<Store>, pick: impl Fn() -> JobPick) -> Result<Option<ResumeKey>> {
    loop {
        store.check_writable()?;
        let mut state = store.scheduler_lock();
        state.check_not_stopped()?;
        let job = match pick() {
            JobPick::Run(job) => job,
            JobPick::Blocked => {
                drop(store.changed.wait(state).ignore_poison());
                continue;
            }
            JobPick::Done => return Ok(None),
        };
        state.manual_compactions += 1;
        drop(state);
        let end = job.resume_key();
        let done = scheduler::run_job(store, Job::Compact(Arc::new(job), JobSlot::default()), true);
        done.map_err(|error| store.set_fatal_error(error))?;
        return Ok(Some(end));
    }
}
