//! Compaction that a caller asks for, or waits for.

use std::sync::{Arc, PoisonError};

use umbel_base::{Result, SequenceNumber};

use crate::background::{self, Job};
use crate::compact::{self, Step};
use crate::compaction::last::{Behind, LAST, Wanted};
use crate::counters::read;
use crate::facts;
use crate::flush_now;
use crate::keyspace_core::KeyspaceCore;
use crate::memory_budget::{LOOK_AGAIN, Turn};
use crate::segments;
use crate::store::Store;

/// What was due at one moment, so that waiting for it ends beside a writer that never pauses.
struct Due {
    /// What was visible: as long as nothing is added, all there is to do is waited for.
    visible: SequenceNumber,
    /// The newest write of each keyspace that waited in a full memtable.
    frozen: Vec<(Arc<KeyspaceCore>, SequenceNumber)>,
    /// How many bytes are compacted once as many as were owed have been.
    bytes_compacted: u64,
}

impl Due {
    fn now(store: &Store) -> Due {
        let visible = store.snapshots.visible();
        let mut bytes_compacted = read(&store.counters.bytes_compacted);
        let mut frozen = Vec::new();
        for keyspace in store.keyspaces() {
            let view = keyspace.view.hold();
            bytes_compacted = bytes_compacted.saturating_add(facts::debt_bytes(&keyspace));
            if let Some(newest) = view.frozen.first() {
                frozen.push((keyspace, newest.last_sequence()));
            }
        }
        Due { visible, frozen, bytes_compacted }
    }

    /// Whether enough was done although there may be more to do.
    fn is_done(&self, store: &Store) -> bool {
        let flushed = |(keyspace, newest): &(Arc<KeyspaceCore>, SequenceNumber)| {
            let view = keyspace.view.load();
            view.frozen.last().is_none_or(|oldest| oldest.first_sequence() > *newest)
        };
        store.snapshots.visible() != self.visible
            && read(&store.counters.bytes_compacted) >= self.bytes_compacted
            && self.frozen.iter().all(flushed)
    }
}

/// Says, for as long as it is held, that garbage is to be compacted without waiting.
struct Wish<'a>(&'a Store);

impl<'a> Wish<'a> {
    fn new(store: &'a Store) -> Wish<'a> {
        let mut state = store.work_lock();
        state.garbage.wanted += 1;
        state.shortage.try_now();
        Wish(store)
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        self.0.work_lock().garbage.wanted -= 1;
    }
}

/// Waits until there is nothing to flush or compact or, beside writers, until as much is done as
/// was due when it was called.
pub fn wait_until_idle(store: &Arc<Store>) -> Result<()> {
    store.check_writable()?;
    // What waits for a quiet moment is wanted now.
    let _wish = Wish::new(store);
    let due = Due::now(store);
    if store.options.background_threads == 0 {
        while !due.is_done(store) && background::run_one(store)? {}
        return Ok(());
    }
    loop {
        store.poison.check()?;
        store.check_open()?;
        let keyspaces = store.keyspaces();
        let mut state = store.work_lock();
        if due.is_done(store) {
            return Ok(());
        }
        let quiet = state.flushing.is_empty() && state.compactions + state.callers == 0;
        if quiet {
            match background::find_job(store, &keyspaces, &mut state) {
                // Stores that share the budget work first.
                None if state.waits_for_turn => {}
                None => {
                    let put_off = state.shortage.reason().cloned();
                    drop(state);
                    return put_off.map_or_else(|| segments::rest(store), Err);
                }
                // Leave it to the threads: undo the claim and wake one.
                Some(Job::Flush(job, _)) => state.flushing.retain(|id| !job.claimed.contains(id)),
                Some(_) => state.compactions -= 1,
            }
            state.ticks += 1;
            store.moved.notify_all();
        }
        if state.waits_for_turn {
            drop(store.moved.wait_timeout(state, LOOK_AGAIN));
        } else {
            drop(store.moved.wait(state).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Compacts everything that overlaps the range down to the last level. There, writes again what
/// holds leftovers that no reader can see any more, and joins neighbours that are small.
pub fn compact_range(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceCore>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<()> {
    flush_now::flush_to_compact(store, keyspace)?;
    for level in 0..LAST {
        while step(store, || compact::pick_range(keyspace, level, start, end))?.is_some() {}
    }
    let readers = store.snapshots.boundaries();
    rewrite_last(store, keyspace, Wanted::Stale(&readers), (start, end))?;
    rewrite_last(store, keyspace, Wanted::Small, (start, end))
}

/// Walks once through the range in the last level and writes again what is wanted.
fn rewrite_last(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceCore>,
    wanted: Wanted<'_>,
    range: (Option<&[u8]>, Option<&[u8]>),
) -> Result<()> {
    let tables = || keyspace.view.load().version.levels[LAST].len();
    let mut behind: Behind = None;
    loop {
        let before = tables();
        let done = step(store, || compact::pick_last(keyspace, wanted, range, &behind))?;
        let Some(end) = done else { return Ok(()) };
        // What was joined may have room for one more. Never twice where nothing came of it, so
        // that the walk ends.
        if wanted != Wanted::Small || tables() >= before {
            behind = end;
        }
    }
}

/// Runs what `pick` picks, when it can be run, and answers with the end of its keys; `None` where
/// nothing is left to pick.
fn step(store: &Arc<Store>, pick: impl Fn() -> Step) -> Result<Option<Behind>> {
    loop {
        store.check_writable()?;
        let mut state = store.work_lock();
        state.check_not_stopped()?;
        let job = match pick() {
            Step::Run(job) => job,
            Step::Blocked => {
                drop(store.moved.wait(state).unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            Step::Done => return Ok(None),
        };
        state.callers += 1;
        drop(state);
        let end = job.end();
        let done = background::run(store, Job::Compact(Arc::new(job), Turn::default()), true);
        done.map_err(|error| store.final_error(error))?;
        return Ok(Some(end));
    }
}
