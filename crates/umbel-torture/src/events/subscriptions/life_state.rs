//! [`Stage`]: what the threads of one life share.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbel_events::{Error, EventId, Store};
use umbel_sim::Sim;

use super::id;
use super::ledger::Ledger;

/// How far a life is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Everybody appends.
    Living,
    /// Nobody appends any more but the last append, behind this position.
    Parting(u64),
    /// The last append was made at this moment.
    Parted(u64, Duration),
    /// Nothing more will come.
    Ended,
}

/// What the threads of a life share.
#[derive(Debug)]
pub struct Stage {
    /// The world.
    pub sim: Sim,
    /// The store.
    pub store: Store,
    /// What is known of it.
    ledger: Mutex<Ledger>,
    phase: Mutex<Phase>,
    wrong: Mutex<Option<String>>,
    /// How many subscriptions there were.
    pub subscriptions: AtomicU64,
    /// How many subscribers waited for the last append and got it.
    pub waited: AtomicU64,
}

/// Locks.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// At the beginning of a life.
    pub fn new(sim: &Sim, store: Store, ledger: Ledger) -> Stage {
        Stage {
            sim: sim.clone(),
            store,
            ledger: Mutex::new(ledger),
            phase: Mutex::new(Phase::Living),
            wrong: Mutex::default(),
            subscriptions: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        }
    }

    /// What is known.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.ledger)
    }

    /// Notes something that was wrong.
    pub fn wrong(&self, text: String) {
        locked(&self.wrong).get_or_insert(text);
    }

    /// Notes an error of the store, which is wrong as long as the world is there.
    pub fn failed(&self, what: &str, error: &Error) {
        if !self.sim.is_dead() {
            self.wrong(format!("{what}: {error}"));
        }
    }

    /// What was wrong, if anything was.
    pub fn take_wrong(&self) -> Option<String> {
        locked(&self.wrong).take()
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        *locked(&self.phase)
    }

    /// Goes on to a phase.
    pub fn set_phase(&self, phase: Phase) {
        *locked(&self.phase) = phase;
    }

    /// Ids that nobody else gets.
    pub fn ids(&self, count: u64) -> Vec<EventId> {
        let mut ledger = self.ledger();
        let first = ledger.next_id;
        ledger.next_id += count;
        (first..first + count).map(id).collect()
    }
}
