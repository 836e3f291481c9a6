//! [`JobSlots`]: limits the number of flushes, or compactions, that the background threads of all
//! stores of a budget run at the same time.
//!
//! A store that finds no free slot does not block: its thread waits for the next release as for
//! other work. Flushes have slots of their own, so that no flush waits for a compaction.
//!
//! INVARIANT: every wait for a slot ends. If no slot of a kind is released for
//! [`STARVATION_LIMIT`], the waiting store takes over the slot of a stuck job. So a store whose
//! device hangs does not stop the other stores.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Weak};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use crate::shared_budget::budget_member::BudgetMember;

/// Time without a release after which a waiting store takes over a slot.
const STARVATION_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which a waiting store tries to take a slot even if nothing wakes it.
pub const SLOT_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of waiting stores that a release wakes. It is more than one, since a woken store
/// can have no work left.
const WOKEN_MAX: usize = 4;

/// Kind of work that a slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// A slot for a flush.
    Flush,
    /// A slot for a compaction, or for a part of a split compaction.
    Compaction,
}

/// Start of a store's wait for a slot.
#[derive(Debug, Clone, Copy)]
pub struct SlotWait {
    changes: u64,
    since: Duration,
}

/// A waiting store, and whether its work is required.
type SlotWaiter = (Weak<dyn BudgetMember>, bool);

/// The slots of one kind of work.
#[derive(Debug)]
pub struct JobSlots {
    capacity: usize,
    running: AtomicUsize,
    /// Number of releases of slots and of slots taken over.
    changes: AtomicU64,
    waiting: Mutex<VecDeque<SlotWaiter>>,
    /// Number of waiting stores whose work is required.
    required_waiters: AtomicUsize,
}

impl JobSlots {
    /// Creates slots for `slots` jobs at the same time.
    pub fn new(slots: usize) -> JobSlots {
        JobSlots {
            capacity: slots,
            running: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            waiting: Mutex::default(),
            required_waiters: AtomicUsize::new(0),
        }
    }

    /// Takes a slot if one is free.
    pub fn try_take(&self) -> bool {
        let more = |running: usize| (running < self.capacity).then_some(running + 1);
        self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Takes a slot, or registers `store` to be woken when a slot is free. The store keeps `wait`
    /// between its attempts; `now` is the time of its clock.
    pub fn take_or_wait(
        &self,
        store: &Weak<dyn BudgetMember>,
        is_needed: bool,
        wait: &mut Option<SlotWait>,
        now: Duration,
    ) -> bool {
        let mut is_taken = self.try_take();
        if !is_taken {
            self.enqueue(store, is_needed);
            // A slot may have been released in between.
            is_taken = self.try_take() || self.take_stalled(wait, now);
        }
        if is_taken {
            *wait = None;
        }
        is_taken
    }

    /// Takes over a slot if the store has waited for [`STARVATION_LIMIT`] and no slot was released
    /// meanwhile.
    fn take_stalled(&self, wait: &mut Option<SlotWait>, now: Duration) -> bool {
        let changes = self.changes.load(Ordering::SeqCst);
        let known = wait.filter(|wait| wait.changes == changes);
        let begun = known.unwrap_or(SlotWait { changes, since: now });
        *wait = Some(begun);
        if now.saturating_sub(begun.since) < STARVATION_LIMIT {
            return false;
        }
        // Of all waiters only one succeeds for each change.
        let (next, order) = (changes + 1, Ordering::SeqCst);
        self.changes.compare_exchange(changes, next, order, order).is_ok()
    }

    fn enqueue(&self, store: &Weak<dyn BudgetMember>, is_needed: bool) {
        let mut waiting = self.waiting.lock().ignore_poison();
        if let Some((_, needed)) = waiting.iter_mut().find(|(other, _)| other.ptr_eq(store)) {
            if is_needed && !std::mem::replace(needed, true) {
                self.required_waiters.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        waiting.push_back((Weak::clone(store), is_needed));
        self.required_waiters.fetch_add(usize::from(is_needed), Ordering::Relaxed);
    }

    /// Whether a store waits for a slot to do required work.
    pub fn is_awaited(&self) -> bool {
        self.required_waiters.load(Ordering::Relaxed) > 0
    }

    /// Releases a slot and wakes waiting stores, those that wait longest first.
    pub fn release(&self) {
        // A slot that was taken over is released twice.
        let less = |running: usize| running.checked_sub(1);
        let _ = self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        self.changes.fetch_add(1, Ordering::SeqCst);
        let woken: Vec<SlotWaiter> = {
            let mut waiting = self.waiting.lock().ignore_poison();
            let count = WOKEN_MAX.min(waiting.len());
            waiting.drain(..count).collect()
        };
        let needed = woken.iter().filter(|(_, is_needed)| *is_needed).count();
        self.required_waiters.fetch_sub(needed, Ordering::Relaxed);
        woken.iter().filter_map(|(store, _)| store.upgrade()).for_each(|store| store.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Debug, Default)]
    struct Store(AtomicUsize);

    impl BudgetMember for Store {
        fn yield_memtables(&self) -> bool {
            false
        }
        fn yield_readers(&self) {}
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn publish(&self) {}
    }

    fn stores<const N: usize>() -> ([Arc<Store>; N], [Weak<dyn BudgetMember>; N]) {
        let stores: [Arc<Store>; N] = std::array::from_fn(|_| Arc::default());
        let weak = stores.each_ref().map(|store| {
            let weak: Weak<Store> = Arc::downgrade(store);
            weak as Weak<dyn BudgetMember>
        });
        (stores, weak)
    }

    #[test]
    fn release_wakes_longest_waiting_stores_once() {
        let turns = JobSlots::new(1);
        let (stores, weak) = stores::<6>();
        assert!(turns.try_take() && !turns.try_take());
        let now = Duration::from_secs(1);
        for store in &weak {
            assert!(!turns.take_or_wait(store, true, &mut None, now));
            assert!(!turns.take_or_wait(store, true, &mut None, now), "it is listed once");
        }
        assert!(turns.is_awaited());
        turns.release();
        let woken = stores.each_ref().map(|store| store.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 1, 1, 1, 0, 0]);
        assert!(turns.take_or_wait(&weak[0], true, &mut None, now), "it was woken for that");
        turns.release();
        let woken = stores.each_ref().map(|store| store.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 1, 1, 1, 1, 1]);
        assert!(!turns.is_awaited() && turns.try_take() && !turns.try_take());
    }

    /// A compaction on a device that hangs must not keep every other store from compacting.
    #[test]
    fn one_store_proceeds_when_no_slot_is_released() {
        let turns = JobSlots::new(1);
        let (_stores, weak) = stores::<2>();
        assert!(turns.try_take());
        let mut waits = [None; 2];
        let mut attempt = |store: usize, millis: u64| {
            let now = Duration::from_millis(millis);
            turns.take_or_wait(&weak[store], false, &mut waits[store], now)
        };
        assert!(!attempt(0, 1000) && !attempt(1, 1000));
        assert!(!attempt(0, 5999));
        assert!(attempt(0, 6000), "it waited for five seconds");
        assert!(!attempt(1, 6001), "the other one begins to wait again");
        assert!(!attempt(1, 11_000) && attempt(1, 11_001));
        turns.release();
        assert!(turns.try_take(), "the one that is stuck does not count any more");
        turns.release();
        turns.release();
        assert!(turns.try_take() && !turns.try_take());
    }
}
