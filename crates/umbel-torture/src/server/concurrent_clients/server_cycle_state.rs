//! [`ServerCycle`]: state that the clients of one crash cycle of a server share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_sim::Sim;

use crate::server::concurrent_clients::client_oracle::{
    ClientAttempt, ClientEventId, ClientOracle, ReceivedEvent, StreamDeletion,
};

/// State that the clients of a crash cycle share.
#[derive(Debug)]
pub struct ServerCycle {
    sim: Sim,
    pub(super) is_stopping: AtomicBool,
    pub(super) next_id: AtomicU64,
    /// Whether streams are deleted.
    pub deletes: bool,
    notes: Mutex<ClientNotes>,
}

/// Notes of the clients of a crash cycle.
#[derive(Debug, Default)]
pub struct ClientNotes {
    /// Appends in this crash cycle.
    pub attempts: Vec<ClientAttempt>,
    /// Deletions in this crash cycle.
    pub deletions: Vec<StreamDeletion>,
    /// Events that readers saw.
    pub seen: Vec<(u64, ClientEventId)>,
    /// Events that the subscription to all events received in this crash cycle.
    pub all: Vec<ReceivedEvent>,
    /// Events that the subscription to a stream received in this crash cycle.
    pub stream: Vec<ReceivedEvent>,
    /// Last acknowledged revision of each stream.
    pub acknowledged: BTreeMap<String, u64>,
    /// Number of sent events of each stream, which is the maximum that it can have.
    pub sent: BTreeMap<String, u64>,
    /// Revisions that refusals named.
    pub named: Vec<(String, u64)>,
    /// The first violation that a client noticed.
    pub(super) wrong: Option<String>,
}

impl ServerCycle {
    /// Creates the state at the beginning of a crash cycle.
    pub(super) fn new(sim: &Sim, deletes: bool, known: &ClientOracle) -> ServerCycle {
        let acknowledged = known.last.clone();
        let sent = known.last.iter().map(|(name, last)| (name.clone(), last + 1)).collect();
        ServerCycle {
            sim: sim.clone(),
            is_stopping: AtomicBool::new(false),
            next_id: AtomicU64::new(known.next_id),
            deletes,
            notes: Mutex::new(ClientNotes { acknowledged, sent, ..ClientNotes::default() }),
        }
    }

    /// Locks the notes.
    pub fn notes(&self) -> MutexGuard<'_, ClientNotes> {
        self.notes.lock().ignore_poison()
    }

    /// Records a violation.
    pub fn wrong(&self, text: String) {
        self.notes().wrong.get_or_insert(text);
    }

    /// Records a failed call, which is a violation unless the crash is happening.
    pub fn failed(&self, text: String) {
        if !self.is_ending() {
            self.wrong(format!("a call failed for no reason: {text}"));
        }
    }

    /// Whether the power was lost or the server is being stopped.
    pub fn is_ending(&self) -> bool {
        self.sim.is_dead() || self.is_stopping.load(Ordering::SeqCst)
    }

    /// Returns the given number of new ids.
    pub fn new_ids(&self, count: u64) -> Vec<ClientEventId> {
        let first = self.next_id.fetch_add(count, Ordering::SeqCst);
        (first..first + count).map(|number| ClientEventId::from(number) << 64 | 0x8000).collect()
    }
}
