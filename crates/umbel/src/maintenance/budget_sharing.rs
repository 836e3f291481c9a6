//! What the stores of one [`crate::memory_budget::MemoryBudget`] do for each other.
//!
//! Memtables: where all together are over their bound, the store with the largest ones that take
//! writes freezes them. A writer that weighs finds that store; where it is another one it is asked,
//! and flushes on its own threads. Writers wait where all memtables are twice over their bound.
//!
//! INVARIANT: a writer waits for a flush of its own store only. It waits while its store has frozen
//! memtables, and each flush looks again whether it may go on. So a store that is stuck holds up no
//! writer of another one.
//!
//! Readers of tables: a store may open as many as the others leave it, or its fair share. Where all
//! together are over, those beyond their fair share close some.
//!
//! What is called of another store waits for none of its locks but the work lock: see
//! [`BudgetMember`].

use std::sync::atomic::{Ordering, fence};
use std::sync::{MutexGuard, TryLockError};

use crate::memory_budget::{BudgetMember, LOOK_AGAIN, Membership, Part, Turn, Work};
use crate::store::{CommitState, Store, WorkState};
use crate::weigh;

/// How many times its bound a store's memtables take before its writers wait.
pub const BUFFERS_HARD: u64 = 2;

/// Weighs the memtables of a store whose budget others share. Answers whether one was frozen.
/// REQUIRES: the commit lock of `store`.
pub fn weigh_memtables(store: &Store, membership: &Membership) -> bool {
    weigh::publish(store, None);
    let shared = membership.shared();
    let (fair, most) = (shared.fair_buffers(), store.budget.sizes.buffers);
    let mut frozen = false;
    if membership.published(Part::Memtables) > most {
        frozen |= weigh::freeze_fullest(store, most / 2);
    }
    let may_be_asked = membership.published(Part::Memtables) > fair;
    if shared.is_to_freeze() && membership.ask_for_memtables() && may_be_asked {
        frozen |= weigh::freeze_fullest(store, membership.writable_most());
    }
    if shared.is_full() && may_be_asked {
        frozen |= weigh::freeze_fullest(store, fair / 2);
    }
    if must_wait(store, membership) {
        hold_writers(store, || must_wait(store, membership));
    }
    frozen
}

/// Holds writers until a flush ends, as long as they are to wait: `must_wait` says that of now.
pub fn hold_writers(store: &Store, must_wait: impl Fn() -> bool) {
    store.buffers_full.store(true, Ordering::SeqCst);
    // The flush that writers would wait for may have ended before the store above. Either that is
    // seen here, or what it found is stored after it.
    fence(Ordering::SeqCst);
    if !must_wait() {
        store.buffers_full.store(false, Ordering::Release);
    }
}

/// Whether writers of `store` are to wait for a flush.
pub fn must_wait(store: &Store, membership: &Membership) -> bool {
    weigh::publish(store, None);
    let (shared, own) = (membership.shared(), membership.published(Part::Memtables));
    let is_over = own > store.budget.sizes.buffers * BUFFERS_HARD
        || shared.is_full() && own > shared.fair_buffers();
    is_over && has_frozen(store)
}

fn has_frozen(store: &Store) -> bool {
    store.keyspaces().iter().any(|keyspace| !keyspace.view.load().frozen.is_empty())
}

/// Takes a turn for what a background thread found to do; `None` where it has to wait for one.
/// What callers do on their own threads waits for no other store.
pub fn turn(store: &Store, state: &mut WorkState, work: Work, is_needed: bool) -> Option<Turn> {
    let membership = store.budget.membership();
    let Some(membership) = membership.filter(|_| store.options.background_threads > 0) else {
        return Some(Turn::default());
    };
    let now = store.options.env.clock.now();
    let wait = &mut state.turn_waits[work as usize];
    let turn = membership.take_turn_or_wait((work, is_needed), wait, now);
    if turn.is_none() {
        state.waits_for_turn = true;
        state.look_again = Some(state.look_again.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN));
    }
    turn
}

/// Closes readers of tables of this store, or has other stores do it, where they hold too much.
pub fn close_readers(store: &Store) {
    weigh::close_readers(store);
    let Some(membership) = store.budget.membership() else { return };
    publish_readers(store, membership);
    if membership.shared().readers_are_over() {
        membership.ask_for_readers();
    }
}

fn publish_readers(store: &Store, membership: &Membership) {
    membership.publish_part(Part::Readers, store.budget.tables.load(Ordering::Relaxed));
}

/// Gives up the share of a store that is closed, and all its readers of tables but those that
/// cursors hold.
pub fn leave(store: &Store) {
    let Some(membership) = store.budget.membership() else { return };
    membership.leave();
    for keyspace in store.keyspaces() {
        let version = std::sync::Arc::clone(&keyspace.view.load().version);
        let open = version.tables().filter(|(_, table)| table.opened().is_some());
        let ids = open.map(|(_, table)| table.meta.id).collect();
        keyspace.view.close_readers(&ids);
    }
    let log = store.commit_lock().wal.mapped_bytes();
    weigh::publish(store, Some(log));
    membership.shared().cache().forget_dropped();
    membership.shared().settle_cache();
}

fn try_commit_lock(store: &Store) -> Option<MutexGuard<'_, CommitState>> {
    match store.commit.try_lock() {
        Ok(state) => Some(state),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl BudgetMember for Store {
    fn yield_memtables(&self) -> bool {
        let Some(membership) = self.budget.membership() else { return false };
        let Some(state) = try_commit_lock(self) else { return false };
        let fair = membership.shared().fair_buffers();
        let frozen = self.check_writable().is_ok() && weigh::freeze_fullest(self, fair / 2);
        weigh::publish(self, Some(state.wal.mapped_bytes()));
        drop(state);
        if !frozen {
            return false;
        }
        if self.options.background_threads == 0 {
            // The next writer finds that it has to flush first.
            hold_writers(self, || has_frozen(self));
        } else {
            self.signal();
        }
        true
    }

    fn yield_readers(&self) {
        weigh::close_readers(self);
        if let Some(membership) = self.budget.membership() {
            publish_readers(self, membership);
        }
    }

    fn wake(&self) {
        // Where the lock is taken, the store looks again soon by itself.
        if let Ok(mut work) = self.work.try_lock() {
            work.ticks += 1;
            self.moved.notify_all();
        }
    }

    fn publish(&self) {
        let log = try_commit_lock(self).map(|state| state.wal.mapped_bytes());
        weigh::publish(self, log);
    }
}
