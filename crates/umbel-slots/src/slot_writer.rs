//! [`SlotWriter`]: the leader, which adds slots.

use std::time::Duration;

use umbel_env::{Clock, Objects};

use crate::chain::{ChainEnd, ChainState};
use crate::freshness::{Contact, SlotTimes};
use crate::leader_proof::{LeaderProofs, ProofStep, ReadTicket};
use crate::retry_pace::RetryPace;
use crate::slot_creation::{CreationStep, SlotCreation};
use crate::slot_entry::SlotEntry;
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_format::{Slot, SlotIds, slot_name};
use crate::slot_requests::{Timed, read_part};

/// The leader, which adds slots, one at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotWriter {
    store: [u8; 16],
    times: SlotTimes,
    node: String,
    chain: ChainState,
    /// Moment of the last success.
    success: Contact,
    creation: Option<SlotCreation>,
    is_deposed: bool,
    proofs: LeaderProofs,
    pace: RetryPace,
}

/// Result of a step of a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStep {
    /// No slot is open.
    Idle,
    /// The open slot is not certain yet.
    Open,
    /// The slot is in the chain: what it says can be acknowledged. After one that gives up the
    /// epoch, the node leads no more.
    Acknowledged(Slot),
    /// The node leads no more. Nothing of the open slot may be acknowledged: it can be in the chain
    /// or not, and the followers find out.
    Deposed,
}

impl SlotWriter {
    /// A writer after its first slot, the last one of the chain, which was created at this moment.
    pub(crate) fn new(
        store: [u8; 16],
        times: SlotTimes,
        node: String,
        chain: ChainState,
        success: Contact,
    ) -> SlotWriter {
        let is_deposed = chain.end.has_resigned;
        SlotWriter {
            store,
            times,
            node,
            chain,
            success,
            creation: None,
            is_deposed,
            proofs: LeaderProofs::default(),
            pace: RetryPace::default(),
        }
    }

    /// The last slot that is certain.
    pub fn end(&self) -> ChainEnd {
        self.chain.end
    }

    /// The chain up to the last slot that is certain, for a snapshot.
    pub fn chain(&self) -> &ChainState {
        &self.chain
    }

    /// Whether a slot is open.
    pub fn is_busy(&self) -> bool {
        self.creation.is_some()
    }

    /// Begins a slot with a new random uid. A node that leads no more begins none: its next step is
    /// [`WriteStep::Deposed`]. REQUIRES: no slot is open.
    ///
    /// # Errors
    /// [`SlotError::Refused`](crate::SlotError::Refused) if readers would refuse the slot, such as
    /// one that is too long. No slot is open then.
    pub fn propose(
        &mut self,
        uid: [u8; 16],
        wall_micros: u64,
        entries: Vec<SlotEntry>,
    ) -> SlotResult<()> {
        if self.is_deposed {
            return Ok(());
        }
        debug_assert!(self.creation.is_none(), "one slot at a time");
        let end = self.chain.end;
        let slot = Slot {
            ids: SlotIds { store: self.store, uid },
            number: end.number + 1,
            epoch: end.epoch,
            previous: end.uid,
            node: self.node.clone(),
            wall_micros,
            entries,
        };
        self.creation = Some(SlotCreation::after(&self.chain, slot)?);
        self.proofs.begin();
        Ok(())
    }

    /// A read arrives that requires the leader. It waits for a proof: the next slot of this leader,
    /// or [`SlotWriter::prove`].
    pub fn arrive(&self) -> ReadTicket {
        self.proofs.arrive()
    }

    /// Whether a proof that began after the read arrived has succeeded, so that the state after
    /// [`SlotWriter::end`] has all that was acknowledged before it arrived.
    pub fn can_answer(&self, read: ReadTicket) -> bool {
        !self.is_deposed && self.proofs.can_answer(read)
    }

    /// Reads the next number: if it is missing, this node leads. REQUIRES: no slot is open.
    ///
    /// # Errors
    /// Failed requests, after which the step can be repeated.
    pub fn prove(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<ProofStep> {
        if self.is_deposed {
            return Ok(ProofStep::Deposed);
        }
        debug_assert!(self.creation.is_none(), "an open slot is a proof of its own");
        self.proofs.begin();
        self.pace.go_on();
        let name = slot_name(self.chain.end.number + 1);
        // One byte shows whether the object exists.
        let read = read_part(objects, clock, &name, 0..1).inspect_err(|_| self.pace.repeat())?;
        let Some(answered) = read.answered else {
            self.pace.repeat();
            return Ok(ProofStep::Unknown);
        };
        // After a longer time the number could have been used and deleted.
        if read.value.is_some() || !self.times.is_fresh(self.success, answered) {
            self.is_deposed = true;
            return Ok(ProofStep::Deposed);
        }
        self.proofs.succeed();
        self.pace.progress();
        Ok(ProofStep::Proven)
    }

    /// Wait before the next step for the open slot.
    pub fn wait(&self) -> Duration {
        self.pace.wait(&self.times)
    }

    /// Sends the next request for the open slot.
    ///
    /// # Errors
    /// [`SlotError::Refused`](crate::SlotError::Refused) if the store contradicts itself for long;
    /// failed requests, after which the step can be repeated.
    pub fn step(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<WriteStep> {
        self.pace.go_on();
        let step = self.send(objects, clock);
        match &step {
            Ok(WriteStep::Acknowledged(_)) => self.pace.progress(),
            Err(_) => self.pace.repeat(),
            Ok(_) => {}
        }
        step
    }

    fn send(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<WriteStep> {
        if self.is_deposed {
            return Ok(WriteStep::Deposed);
        }
        let Some(creation) = &mut self.creation else { return Ok(WriteStep::Idle) };
        let Timed { value, contact, answered } =
            creation.step(objects, clock, &self.times, self.success)?;
        match value {
            CreationStep::Open => Ok(WriteStep::Open),
            CreationStep::Missing => {
                self.pace.repeat();
                Ok(WriteStep::Open)
            }
            CreationStep::Other | CreationStep::Late => {
                self.is_deposed = true;
                Ok(WriteStep::Deposed)
            }
            CreationStep::Mine => {
                let is_fresh = answered.is_some_and(|now| self.times.is_fresh(self.success, now));
                let Some(success) = contact.filter(|_| is_fresh) else {
                    // The number could have been used and deleted since the last success.
                    self.is_deposed = true;
                    return Ok(WriteStep::Deposed);
                };
                let slot = creation.slot.clone();
                let advanced = self.chain.advance(&slot);
                advanced.map_err(|reason| SlotError::unwritable(slot.number, &reason))?;
                debug_assert_eq!(self.chain.end, creation.end, "the proposal was checked");
                self.success = success;
                self.creation = None;
                self.proofs.succeed();
                self.is_deposed = slot.ends_epoch();
                Ok(WriteStep::Acknowledged(slot))
            }
        }
    }
}
