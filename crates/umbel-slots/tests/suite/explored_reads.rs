//! [`ExploredReads`]: reads of an explored leader that require the leader.

use umbel_slots::{ReadTicket, SlotWriter};

use super::explored_actions::Action;
use super::explored_store::ExploredClock;

/// Units for which the broken lease lasts.
const LEASE: u64 = 1;

/// Part of C4 that a leader breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadsFault {
    #[default]
    None,
    /// A leader answers while its last slot is young by its own clock.
    TrustsClock,
    /// A proof counts that began before the read arrived.
    TrustsEarlierProof,
    /// A proof takes each answer without an object for that of the store.
    TrustsProxy,
}

impl ReadsFault {
    /// All faults.
    pub const ALL: [ReadsFault; 3] =
        [ReadsFault::TrustsClock, ReadsFault::TrustsEarlierProof, ReadsFault::TrustsProxy];
}

/// A read: its arrival, and the last slot that any leader had acknowledged then.
type Read = (ReadTicket, u64);

/// Reads of a node that wait for a proof.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ExploredReads {
    pub fault: ReadsFault,
    waiting: Vec<Read>,
    /// Arrival of a read at the beginning of the epoch, for a leader that trusts each proof.
    first: Option<ReadTicket>,
    /// The clock at the last slot, for a leader that trusts it.
    last: u64,
    /// Number of answers.
    pub answered: u64,
}

impl ExploredReads {
    /// Whether a read waits.
    pub fn are_used(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn arrive(&mut self, writer: &SlotWriter, acknowledged: u64) {
        self.waiting.push((writer.arrive(), acknowledged));
    }

    /// The node leads no more: its reads fail.
    pub fn fail(&mut self) {
        self.waiting.clear();
        self.first = None;
    }

    pub fn promote(&mut self, writer: &SlotWriter, clock: ExploredClock) {
        if self.fault == ReadsFault::TrustsEarlierProof {
            self.first = Some(writer.arrive());
        }
        self.slot_created(clock);
    }

    pub fn slot_created(&mut self, clock: ExploredClock) {
        if self.fault == ReadsFault::TrustsClock {
            self.last = clock.node;
        }
    }

    /// Beginning of the names that the node does not find with this action.
    pub fn hidden(&self, action: Action) -> Option<&'static str> {
        let is_hidden = self.fault == ReadsFault::TrustsProxy && action == Action::Prove;
        is_hidden.then_some("slots/")
    }

    /// Whether the leader answers the read that came first.
    pub fn can_answer(&self, writer: &SlotWriter, clock: ExploredClock) -> bool {
        let Some((read, _)) = self.waiting.first() else { return false };
        let is_young = || clock.node.saturating_sub(self.last) <= LEASE;
        writer.can_answer(self.first.unwrap_or(*read))
            || (self.fault == ReadsFault::TrustsClock && is_young())
    }

    /// Answers the read that came first from the state of the leader.
    pub fn answer(&mut self, writer: &SlotWriter) -> Result<(), String> {
        let (_, acknowledged) = self.waiting.remove(0);
        self.answered += 1;
        let end = writer.end().number;
        match end >= acknowledged {
            true => Ok(()),
            false => Err(format!("a read sees slot {end}, after slot {acknowledged} was there")),
        }
    }
}
