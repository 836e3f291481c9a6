//! [`Way`]: when a compaction that is only of use makes way for what is needed.
//!
//! Garbage is compacted when nothing else is to do, but may take long. It is given up where the
//! store is being closed, and where a flush or a compaction waits that nobody else may run or that
//! wants the tables it reads, or where a store that shares the budget waits for its turn. What it
//! wrote by then is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::facts;
use crate::keyspace_core::KeyspaceCore;
use crate::store::{Store, WorkState};

/// What one compaction knows of it; all of its parts ask.
#[derive(Debug)]
pub struct Way {
    /// Changes seen by [`Store::signal`]: as long as there is none, nothing new waits.
    ticks: AtomicU64,
    is_made: AtomicBool,
}

impl Default for Way {
    fn default() -> Way {
        Way { ticks: AtomicU64::new(u64::MAX), is_made: AtomicBool::new(false) }
    }
}

impl Way {
    /// Whether something waits for what a compaction of `keyspace` takes.
    pub fn is_wanted(&self, store: &Store, keyspace: &Arc<KeyspaceCore>) -> bool {
        if self.is_made.load(Ordering::Relaxed) {
            return true;
        }
        if store.budget.is_turn_needed() {
            self.is_made.store(true, Ordering::Relaxed);
            return true;
        }
        let ticks = store.work_lock().ticks;
        if self.ticks.swap(ticks, Ordering::Relaxed) == ticks {
            return false;
        }
        let keyspaces = store.keyspaces();
        let owing: Vec<u32> = owing(&keyspaces).collect();
        let state = store.work_lock();
        let is_wanted = state.stop
            || a_flush_waits(store, &keyspaces, &state)
            || owing.contains(&keyspace.id)
            || !owing.is_empty() && !has_room(store, state.compactions);
        if is_wanted {
            self.is_made.store(true, Ordering::Relaxed);
        }
        is_wanted
    }
}

/// Keyspaces whose levels are over their targets.
pub fn owing(keyspaces: &[Arc<KeyspaceCore>]) -> impl Iterator<Item = u32> {
    let owes = |keyspace: &&Arc<KeyspaceCore>| {
        !keyspace.dropped.load(Ordering::Acquire) && facts::debt_bytes(keyspace) > 0
    };
    keyspaces.iter().filter(owes).map(|keyspace| keyspace.id)
}

/// Whether a further compaction may run beside so many. One thread stays free for flushes, so that
/// a long compaction holds no writer up.
pub fn has_room(store: &Store, compactions: usize) -> bool {
    let threads = store.options.background_threads;
    let spared = usize::from(threads > 1);
    let fits = threads == 0 || compactions + spared < threads;
    fits && compactions < store.budget.sizes.compactions
}

/// Whether a full memtable waits for the only thread there is.
fn a_flush_waits(store: &Store, keyspaces: &[Arc<KeyspaceCore>], state: &WorkState) -> bool {
    let waits = |keyspace: &Arc<KeyspaceCore>| {
        !state.flushing.contains(&keyspace.id) && !keyspace.view.load().frozen.is_empty()
    };
    store.options.background_threads == 1 && keyspaces.iter().any(waits)
}
