//! [`SubscriptionCycle`]: state that the threads of one crash cycle share.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_events::{Error, EventId, Store};
use umbel_sim::Sim;

use super::event_id;
use crate::events::subscriptions::event_oracle::EventOracle;

/// Progress of a crash cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CyclePhase {
    /// All threads work.
    Living,
    /// Writers have ended; after this position only the last append follows.
    Parting(u64),
    /// The last append was made at this moment.
    Parted(u64, Duration),
    /// No further event will be appended.
    Ended,
}

/// State that the threads of a crash cycle share.
#[derive(Debug)]
pub struct SubscriptionCycle {
    /// The simulated machine.
    pub sim: Sim,
    /// The store.
    pub store: Store,
    /// Everything known about the store's events.
    oracle: Mutex<EventOracle>,
    phase: Mutex<CyclePhase>,
    wrong: Mutex<Option<String>>,
    /// Number of subscriptions.
    pub subscriptions: AtomicU64,
    /// Number of subscribers that waited for the last append and received it.
    pub waited: AtomicU64,
}

impl SubscriptionCycle {
    /// Creates the state at the beginning of a crash cycle.
    pub fn new(sim: &Sim, store: Store, oracle: EventOracle) -> SubscriptionCycle {
        SubscriptionCycle {
            sim: sim.clone(),
            store,
            oracle: Mutex::new(oracle),
            phase: Mutex::new(CyclePhase::Living),
            wrong: Mutex::default(),
            subscriptions: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        }
    }

    /// Locks the event oracle.
    pub fn oracle(&self) -> MutexGuard<'_, EventOracle> {
        self.oracle.lock().ignore_poison()
    }

    /// Records a violation.
    pub fn wrong(&self, text: String) {
        self.wrong.lock().ignore_poison().get_or_insert(text);
    }

    /// Records an error of the store, which is a violation unless the crash has happened.
    pub fn failed(&self, what: &str, error: &Error) {
        if !self.sim.is_dead() {
            self.wrong(format!("{what}: {error}"));
        }
    }

    /// Returns the first violation, if any.
    pub fn take_violation(&self) -> Option<String> {
        self.wrong.lock().ignore_poison().take()
    }

    /// Returns the phase of the crash cycle.
    pub fn phase(&self) -> CyclePhase {
        *self.phase.lock().ignore_poison()
    }

    /// Changes the phase of the crash cycle.
    pub fn set_phase(&self, phase: CyclePhase) {
        *self.phase.lock().ignore_poison() = phase;
    }

    /// Returns ids that no other writer gets.
    pub fn ids(&self, count: u64) -> Vec<EventId> {
        let mut oracle = self.oracle();
        let first = oracle.next_id;
        oracle.next_id += count;
        (first..first + count).map(event_id).collect()
    }
}
