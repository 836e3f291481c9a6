//! Cooperation of the stores that share a [`crate::shared_budget::MemoryBudget`].
//!
//! Memtables: if the memtables of all stores exceed their limit, a writer's check finds the store
//! with the largest active memtables. That store freezes its memtables; if it is not the writer's
//! own, it gets a request and flushes on its own threads. Writers wait while all memtables together
//! exceed twice their limit.
//!
//! INVARIANT: a writer waits only for flushes of its own store. The wait lasts only while that
//! store has frozen memtables, and each flush checks whether the writer can continue. So a blocked
//! store stalls no writer of another store.
//!
//! Table readers: a store can keep as many open as the other stores leave it, and at least its fair
//! share. If the readers of all stores exceed the limit, stores above their fair share close some.
//!
//! A call into another store waits for no lock of that store except its work lock: see
//! [`BudgetMember`].

use crate::maintenance::memory_enforcement;
use crate::shared_budget::{
    BudgetMember, JobKind, JobSlot, Membership, MemoryUse, SLOT_RETRY_INTERVAL,
};
use crate::state::store::{SchedulerState, Store};
use std::sync::atomic::{Ordering, fence};

/// Multiple of its limit that a store's memtables reach before its writers wait.
pub const MEMTABLES_HARD_FACTOR: u64 = 2;

/// Checks the memtables of a store that shares its budget. Returns whether a memtable was frozen.
/// REQUIRES: the caller holds the commit lock of `store`.
pub fn enforce_shared(store: &Store, membership: &Membership) -> bool {
    memory_enforcement::publish(store, None);
    let shared = membership.shared();
    let (fair, limit) = (shared.fair_memtable_bytes(), store.budget.sizes.buffers);
    let mut frozen = false;
    if membership.published(MemoryUse::Memtables) > limit {
        frozen |= memory_enforcement::freeze_fullest(store, limit / 2);
    }
    let exceeds_fair_share = membership.published(MemoryUse::Memtables) > fair;
    if shared.needs_freeze() && membership.request_memtables() && exceeds_fair_share {
        frozen |= memory_enforcement::freeze_fullest(store, membership.writable_max());
    }
    if shared.is_full() && exceeds_fair_share {
        frozen |= memory_enforcement::freeze_fullest(store, fair / 2);
    }
    if must_stall(store, membership) {
        stall_writers(store, || must_stall(store, membership));
    }
    frozen
}

/// Stalls writers until a flush ends, if `must_wait` still says that they must wait.
pub fn stall_writers(store: &Store, must_wait: impl Fn() -> bool) {
    store.memtables_full.store(true, Ordering::SeqCst);
    // The flush that writers would wait for may have ended before the store above. Either that is
    // visible here, or its own result is stored after it.
    fence(Ordering::SeqCst);
    if !must_wait() {
        store.memtables_full.store(false, Ordering::Release);
    }
}

/// Whether writers of `store` must wait for a flush.
pub fn must_stall(store: &Store, membership: &Membership) -> bool {
    memory_enforcement::publish(store, None);
    let (shared, own) = (membership.shared(), membership.published(MemoryUse::Memtables));
    let is_over = own > store.budget.sizes.buffers * MEMTABLES_HARD_FACTOR
        || shared.is_full() && own > shared.fair_memtable_bytes();
    is_over && has_frozen(store)
}

fn has_frozen(store: &Store) -> bool {
    store.keyspaces().iter().any(|keyspace| !keyspace.super_version.load().frozen.is_empty())
}

/// Takes a job slot for a background thread's job; `None` if the job has to wait for a slot. Work
/// on callers' threads does not wait for other stores.
pub fn take_slot(
    store: &Store,
    state: &mut SchedulerState,
    work: JobKind,
    is_needed: bool,
) -> Option<JobSlot> {
    let membership = store.budget.membership();
    let Some(membership) = membership.filter(|_| store.options.background_threads > 0) else {
        return Some(JobSlot::default());
    };
    let now = store.options.env.clock.now();
    let wait = &mut state.slot_waits[work as usize];
    let turn = membership.take_slot_or_wait((work, is_needed), wait, now);
    if turn.is_none() {
        state.waits_for_slot = true;
        state.recheck_after =
            Some(state.recheck_after.unwrap_or(SLOT_RETRY_INTERVAL).min(SLOT_RETRY_INTERVAL));
    }
    turn
}

/// If table readers use too much memory, closes readers of this store or makes other stores close
/// theirs.
pub fn close_readers(store: &Store) {
    memory_enforcement::close_readers(store);
    let Some(membership) = store.budget.membership() else { return };
    publish_readers(store, membership);
    if membership.shared().exceeds_readers_max() {
        membership.request_readers();
    }
}

fn publish_readers(store: &Store, membership: &Membership) {
    membership.publish_use(MemoryUse::Readers, store.budget.tables.load(Ordering::Relaxed));
}

/// Gives up a closed store's share of the budget, and closes its table readers except those that
/// cursors use.
pub fn leave(store: &Store) {
    let Some(membership) = store.budget.membership() else { return };
    membership.leave();
    for keyspace in store.keyspaces() {
        let version = std::sync::Arc::clone(&keyspace.super_version.load().version);
        let open = version.tables().filter(|(_, table)| table.opened().is_some());
        let ids = open.map(|(_, table)| table.meta.id).collect();
        keyspace.super_version.close_readers(&ids);
    }
    let log = store.commit_lock().wal.mapped_bytes();
    memory_enforcement::publish(store, Some(log));
    membership.shared().cache().remove_dropped();
    membership.shared().resize_cache();
}

impl BudgetMember for Store {
    fn yield_memtables(&self) -> bool {
        let Some(membership) = self.budget.membership() else { return false };
        let Some(state) = self.try_commit_lock() else { return false };
        let fair = membership.shared().fair_memtable_bytes();
        let frozen =
            self.check_writable().is_ok() && memory_enforcement::freeze_fullest(self, fair / 2);
        memory_enforcement::publish(self, Some(state.wal.mapped_bytes()));
        drop(state);
        if !frozen {
            return false;
        }
        if self.options.background_threads == 0 {
            // The next writer finds that it has to flush first.
            stall_writers(self, || has_frozen(self));
        } else {
            self.signal();
        }
        true
    }

    fn yield_readers(&self) {
        memory_enforcement::close_readers(self);
        if let Some(membership) = self.budget.membership() {
            publish_readers(self, membership);
        }
    }

    fn wake(&self) {
        // Where the lock is taken, the store checks again soon by itself.
        if let Ok(mut work) = self.scheduler.try_lock() {
            work.ticks += 1;
            self.changed.notify_all();
        }
    }

    fn publish(&self) {
        let log = self.try_commit_lock().map(|state| state.wal.mapped_bytes());
        memory_enforcement::publish(self, log);
    }
}
