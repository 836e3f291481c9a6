//! [`Turns`]: how many flushes, or compactions, the background threads of all stores of a budget
//! run at the same time.
//!
//! A store that finds no turn is not blocked: its thread waits for the next release as it waits for
//! other work. Flushes have turns of their own, so that none waits for a compaction.
//!
//! INVARIANT: no wait for a turn is without an end. Where no turn of a kind was released for
//! [`PATIENCE`], the store that waited so long takes over the turn of a job that is stuck. So a
//! store whose device hangs keeps no other one from its work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use super::member::BudgetMember;

/// After how long without a release a store takes over a turn.
const PATIENCE: Duration = Duration::from_secs(5);
/// After how long a waiting store looks again although it was not woken.
pub const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How many waiting stores a release wakes. The one that has no work left must not be the only one.
const WOKEN: usize = 4;

/// What turns are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Flushes.
    Flush,
    /// Compactions, and parts of one.
    Compaction,
}

/// Since when a store has been waiting for a turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnWait {
    changes: u64,
    since: Duration,
}

/// A store that waits, and whether the work is needed.
type Waiting = (Weak<dyn BudgetMember>, bool);

/// The turns of one kind of work.
#[derive(Debug)]
pub struct Turns {
    most: usize,
    running: AtomicUsize,
    /// Counts releases, and turns taken over.
    changes: AtomicU64,
    waiting: Mutex<VecDeque<Waiting>>,
    /// How many of these wait for needed work.
    needed: AtomicUsize,
}

impl Turns {
    /// So many at the same time.
    pub fn new(most: usize) -> Turns {
        Turns {
            most,
            running: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            waiting: Mutex::default(),
            needed: AtomicUsize::new(0),
        }
    }

    /// Takes a turn where one is free.
    pub fn take(&self) -> bool {
        let more = |running: usize| (running < self.most).then_some(running + 1);
        self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Takes a turn, or has `store` woken when one is free. `wait` is kept by the store between its
    /// attempts, `now` is the time of its clock.
    pub fn take_or_wait(
        &self,
        store: &Weak<dyn BudgetMember>,
        is_needed: bool,
        wait: &mut Option<TurnWait>,
        now: Duration,
    ) -> bool {
        let mut is_taken = self.take();
        if !is_taken {
            self.enqueue(store, is_needed);
            // One may have been released in between.
            is_taken = self.take() || self.take_over(wait, now);
        }
        if is_taken {
            *wait = None;
        }
        is_taken
    }

    /// Takes over a turn, where none was released while the store waited, for too long.
    fn take_over(&self, wait: &mut Option<TurnWait>, now: Duration) -> bool {
        let changes = self.changes.load(Ordering::SeqCst);
        let known = wait.filter(|wait| wait.changes == changes);
        let begun = known.unwrap_or(TurnWait { changes, since: now });
        *wait = Some(begun);
        if now.saturating_sub(begun.since) < PATIENCE {
            return false;
        }
        // Of all that wait only one goes on each time.
        let (next, order) = (changes + 1, Ordering::SeqCst);
        self.changes.compare_exchange(changes, next, order, order).is_ok()
    }

    fn enqueue(&self, store: &Weak<dyn BudgetMember>, is_needed: bool) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, needed)) = waiting.iter_mut().find(|(other, _)| other.ptr_eq(store)) {
            if is_needed && !std::mem::replace(needed, true) {
                self.needed.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        waiting.push_back((Weak::clone(store), is_needed));
        self.needed.fetch_add(usize::from(is_needed), Ordering::Relaxed);
    }

    /// Whether a store waits for a turn to do needed work.
    pub fn is_needed(&self) -> bool {
        self.needed.load(Ordering::Relaxed) > 0
    }

    /// Gives a turn back, and wakes stores that wait, the oldest first.
    pub fn release(&self) {
        // A turn that was taken over is given back twice.
        let less = |running: usize| running.checked_sub(1);
        let _ = self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        self.changes.fetch_add(1, Ordering::SeqCst);
        let woken: Vec<Waiting> = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let count = WOKEN.min(waiting.len());
            waiting.drain(..count).collect()
        };
        let needed = woken.iter().filter(|(_, is_needed)| *is_needed).count();
        self.needed.fetch_sub(needed, Ordering::Relaxed);
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
    fn a_release_wakes_the_stores_that_waited_longest_once() {
        let turns = Turns::new(1);
        let (stores, weak) = stores::<6>();
        assert!(turns.take() && !turns.take());
        let now = Duration::from_secs(1);
        for store in &weak {
            assert!(!turns.take_or_wait(store, true, &mut None, now));
            assert!(!turns.take_or_wait(store, true, &mut None, now), "it is listed once");
        }
        assert!(turns.is_needed());
        turns.release();
        let woken = stores.each_ref().map(|store| store.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 1, 1, 1, 0, 0]);
        assert!(turns.take_or_wait(&weak[0], true, &mut None, now), "it was woken for that");
        turns.release();
        let woken = stores.each_ref().map(|store| store.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 1, 1, 1, 1, 1]);
        assert!(!turns.is_needed() && turns.take() && !turns.take());
    }

    /// A compaction on a device that hangs must not keep every other store from compacting.
    #[test]
    fn one_store_goes_on_where_nothing_was_released_for_long() {
        let turns = Turns::new(1);
        let (_stores, weak) = stores::<2>();
        assert!(turns.take());
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
        assert!(turns.take(), "the one that is stuck does not count any more");
        turns.release();
        turns.release();
        assert!(turns.take() && !turns.take());
    }
}
