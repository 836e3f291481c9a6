//! [`Preemption`]: cancels an optional compaction when required work needs its slot or tables.
//!
//! A compaction of garbage starts when there is nothing else to do, but can take long. It is
//! cancelled in these cases:
//! - the store is being closed;
//! - a required flush or compaction waits for its thread or for the tables that it reads;
//! - another store that shares the budget waits for its job slot.
//!
//! The output of a cancelled compaction is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::maintenance::compaction_jobs::picker_input;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::{SchedulerState, Store};

/// State of a compaction's preemption check, shared by all parts of the compaction.
#[derive(Debug)]
pub struct Preemption {
    /// Number of calls of [`Store::signal`] at the last check. While it does not change, no new
    /// work can be waiting.
    ticks: AtomicU64,
    is_preempted: AtomicBool,
}

impl Default for Preemption {
    fn default() -> Preemption {
        Preemption { ticks: AtomicU64::new(u64::MAX), is_preempted: AtomicBool::new(false) }
    }
}

impl Preemption {
    /// Whether required work waits for the job slot or the tables of a compaction of `keyspace`.
    pub fn should_preempt(&self, store: &Store, keyspace: &Arc<KeyspaceState>) -> bool {
        if self.is_preempted.load(Ordering::Relaxed) {
            return true;
        }
        if store.budget.is_slot_awaited() {
            self.is_preempted.store(true, Ordering::Relaxed);
            return true;
        }
        let ticks = store.scheduler_lock().ticks;
        if self.ticks.swap(ticks, Ordering::Relaxed) == ticks {
            return false;
        }
        let keyspaces = store.keyspaces();
        let with_debt: Vec<u32> = keyspaces_with_debt(&keyspaces).collect();
        let state = store.scheduler_lock();
        let is_wanted = state.stop
            || is_flush_waiting(store, &keyspaces, &state)
            || with_debt.contains(&keyspace.id)
            || !with_debt.is_empty() && !has_free_thread(store, state.compactions);
        if is_wanted {
            self.is_preempted.store(true, Ordering::Relaxed);
        }
        is_wanted
    }
}

/// Returns the keyspaces whose levels are over their targets.
pub fn keyspaces_with_debt(keyspaces: &[Arc<KeyspaceState>]) -> impl Iterator<Item = u32> {
    let has_debt = |keyspace: &&Arc<KeyspaceState>| {
        !keyspace.dropped.load(Ordering::Acquire) && picker_input::debt_bytes(keyspace) > 0
    };
    keyspaces.iter().filter(has_debt).map(|keyspace| keyspace.id)
}

/// Whether a further compaction can run in addition to `compactions` running ones. One thread stays
/// free for flushes, so that long compactions do not stall writers.
pub fn has_free_thread(store: &Store, compactions: usize) -> bool {
    let threads = store.options.background_threads;
    let spared = usize::from(threads > 1);
    let fits = threads == 0 || compactions + spared < threads;
    fits && compactions < store.budget.sizes.compactions
}

/// Whether a full memtable waits for the only background thread.
fn is_flush_waiting(
    store: &Store,
    keyspaces: &[Arc<KeyspaceState>],
    state: &SchedulerState,
) -> bool {
    let waits = |keyspace: &Arc<KeyspaceState>| {
        !state.flushing.contains(&keyspace.id) && !keyspace.super_version.load().frozen.is_empty()
    };
    store.options.background_threads == 1 && keyspaces.iter().any(waits)
}
