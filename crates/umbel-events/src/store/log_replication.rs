//! [`LogReplication`]: the event log's side of a replicated log. Experimental.
//!
//! The thread that writes slots loops over these calls: [`LogReplication::wait_unslotted`],
//! [`LogReplication::next_slot`], a creation in the object store, and
//! [`LogReplication::slot_created`]. It holds no lock of the store meanwhile, and appends go on.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use umbel_slots::{LogPoint, Slot, SlotEntry};

use crate::event_log::chunk_bytes::ChunkBytes;
use crate::shared_store_state::StoreInner;
use crate::store::store_close;
use crate::types::error::{Error, Result};
use crate::visibility::index_gate::ReplicatedGate;

/// The event log's side of a replicated log. Returned by
/// [`Store::open_replicated`](crate::Store::open_replicated). It does not keep the store open.
#[derive(Debug, Clone)]
pub struct LogReplication {
    shared: Arc<StoreInner>,
}

/// Content of the leader's next slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRecords {
    /// Point that [`LogReplication::slot_created`] gets once the slot is in the chain.
    pub to: LogPoint,
    /// The records, chunk by chunk.
    pub chunks: Vec<ChunkBytes>,
}

impl LogReplication {
    pub(crate) fn new(shared: &Arc<StoreInner>) -> LogReplication {
        LogReplication { shared: Arc::clone(shared) }
    }

    fn gate(&self) -> Result<&ReplicatedGate> {
        self.shared.check_process()?;
        let gate = self.shared.visible.gate.as_replicated();
        gate.ok_or_else(|| Error::invalid("internal: the event store is not replicated"))
    }

    /// Returns an error where [`LogReplication::promote`] would refuse each epoch: a candidate must
    /// not depose a leader then.
    ///
    /// # Errors
    /// `NotLeader` if the store led before or was closed; `Invalid` if the log has records beyond
    /// the slots.
    pub fn check_promotion(&self) -> Result<()> {
        let in_slots = self.gate()?.in_slots().offset;
        if self.has_ended() {
            return Err(Error::NotLeader);
        }
        match self.shared.log.last_position() {
            Some(last) if last >= in_slots => {
                Err(Error::invalid("the event log has records that no acknowledged slot has"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the store was closed, or its leadership ended. Nothing more is acknowledged.
    pub fn has_ended(&self) -> bool {
        self.shared.check_process().is_err() || self.shared.visible.gate.has_ended()
    }

    /// Reason why the store accepts no more writes; `None` while it does.
    pub fn fatal_error(&self) -> Option<String> {
        self.shared.fatal_error.get().cloned()
    }

    /// The store leads from this epoch on: the slot that begins the epoch exists.
    ///
    /// # Errors
    /// `Invalid` if the store led before or was closed, if the epoch is not a later one, or if the
    /// log has records beyond the slots.
    pub fn promote(&self, epoch: u64) -> Result<()> {
        let gate = self.gate()?;
        if let Some(replica) = &self.shared.replica {
            // Before the first append, so that a later open keeps what no slot has.
            replica.change(|state| state.has_led = true);
            replica.write()?;
        }
        let in_slots = gate.in_slots().offset;
        let last = self.shared.log.last_position();
        // Any position after `in_slots` is refused.
        let log_end = last.map_or(in_slots, |last| in_slots.max(last + 1));
        gate.promote(epoch, log_end)
    }

    /// Point up to which the records of the log are in acknowledged slots. Valid after the end,
    /// too.
    ///
    /// # Errors
    /// An error in a forked child.
    pub fn in_slots(&self) -> Result<LogPoint> {
        Ok(self.gate()?.in_slots())
    }

    /// Part of the log that the next slots are to have; empty if the store does not lead.
    ///
    /// # Errors
    /// An error in a forked child.
    pub fn unslotted(&self) -> Result<Range<u64>> {
        Ok(self.gate()?.unslotted())
    }

    /// Number of bytes of the log that the next slots are to have. The distance of the positions is
    /// larger where chunks were not filled.
    ///
    /// # Errors
    /// An error in a forked child.
    pub fn unslotted_bytes(&self) -> Result<u64> {
        let Range { start, end } = self.unslotted()?;
        Ok(self.shared.log.bytes_between(start, end))
    }

    /// Ends the present wait of [`LogReplication::wait_unslotted`], or else the next one.
    pub fn interrupt_wait(&self) {
        if let Ok(gate) = self.gate() {
            gate.interrupt_wait();
        }
    }

    /// Waits until the log has something for the next slot, the store leads no more or
    /// [`LogReplication::interrupt_wait`] was called, at most for `timeout`. Returns the part of
    /// the log that the next slots are to have.
    ///
    /// # Errors
    /// An error in a forked child.
    pub fn wait_unslotted(&self, timeout: Duration) -> Result<Range<u64>> {
        Ok(self.gate()?.wait_unslotted(timeout))
    }

    /// Makes the log durable, and returns the content of the next slot: whole records with at most
    /// `bytes_max` bytes, or one longer record. `None` if the slots have everything, or the store
    /// does not lead. Changes nothing else: until a slot is created, the same records come again.
    ///
    /// # Errors
    /// A failed sync, which is fatal, or a failed read. After a fatal error no slot comes any more,
    /// so the caller ends the store.
    pub fn next_slot(&self, bytes_max: u64) -> Result<Option<SlotRecords>> {
        let Some((to, range)) = self.gate()?.next_slot(bytes_max) else { return Ok(None) };
        self.shared.damage.record(self.read_slot(to, range)).map(Some)
    }

    fn read_slot(&self, to: LogPoint, range: Range<u64>) -> Result<SlotRecords> {
        self.shared.sync_log()?;
        Ok(SlotRecords { to, chunks: self.shared.log.read_records(range)? })
    }

    /// A slot of this leader is in the chain, with the records up to this point, or without any.
    /// Indexes these records, which become visible, and acknowledges their appends. If the index
    /// fails, those who wait get the error, and repeat the step.
    ///
    /// # Errors
    /// `Invalid` if the slot is not of this log and epoch, ends within a record, or if the store
    /// does not lead. Also in a replica, which records its slots by
    /// [`LogReplication::slot_in_chain`].
    pub fn slot_created(&self, to: LogPoint) -> Result<()> {
        let gate = self.gate()?;
        if self.shared.replica.is_some() {
            return Err(Error::invalid("internal: a replica records the slots of its leader"));
        }
        gate.slot_created(to)?;
        self.index_slot(to);
        Ok(())
    }

    /// A slot of this leader is in the chain. Like [`LogReplication::slot_created`], for a replica,
    /// whose leader reports each of its slots, from the one that begins its epoch on.
    ///
    /// # Errors
    /// Those of [`LogReplication::slot_created`]. `Invalid` if the slot does not follow the one
    /// before, or if the store is no replica.
    pub fn slot_in_chain(&self, slot: &Slot) -> Result<()> {
        let gate = self.gate()?;
        let Some(replica) = &self.shared.replica else {
            return Err(Error::invalid("internal: only a replica records the chain of slots"));
        };
        let mut state = replica.state();
        state.advance(slot).map_err(|reason| {
            Error::invalid(format!("slot {} does not follow: {reason}", slot.number))
        })?;
        let last = slot.entries.iter().rev().find_map(|entry| match entry {
            SlotEntry::Bytes { log, from, bytes } => Some((log.id, from + bytes.len() as u64)),
            _ => None,
        });
        let offset = match last {
            Some((chunk, end)) => self.chunk_start(chunk)? + end,
            None => gate.in_slots().offset,
        };
        let to = LogPoint { epoch: slot.epoch, offset };
        gate.slot_created_with(to, || replica.change(|known| *known = state))?;
        self.index_slot(to);
        // It may lag: an open then applies more slots again.
        let _ = replica.write_if_late();
        Ok(())
    }

    /// A slot of this leader is in the chain, with the records up to this point, or without any.
    /// Like [`LogReplication::slot_in_chain`] for a replica, and otherwise like
    /// [`LogReplication::slot_created`].
    ///
    /// # Errors
    /// Those of these calls.
    pub fn slot_confirmed(&self, slot: &Slot, to: Option<LogPoint>) -> Result<()> {
        match (self.is_replica(), to) {
            (true, _) => self.slot_in_chain(slot),
            (false, Some(to)) => self.slot_created(to),
            (false, None) => Ok(()),
        }
    }

    /// Whether the store records the slots of its log.
    pub fn is_replica(&self) -> bool {
        self.shared.replica.is_some()
    }

    /// Position of the first byte of the chunk with this id.
    fn chunk_start(&self, id: u64) -> Result<u64> {
        let chunks = self.shared.log.chunks.all();
        let chunk = chunks.iter().find(|chunk| chunk.id == id);
        let start = chunk.map(|chunk| chunk.start);
        start.ok_or_else(|| Error::invalid(format!("the event log has no chunk {id}")))
    }

    /// Indexes the records of a slot of this leader, up to this point.
    fn index_slot(&self, to: LogPoint) {
        if let Err(error) = self.shared.apply_permitted() {
            let last = to.offset.saturating_sub(1);
            self.shared.callbacks.fail(&self.shared.components, last, &error);
        }
    }

    /// Ends the store of a leader that leads no more. All waits fail with
    /// [`Error::AppendAmbiguous`]. Nothing more is indexed, acknowledged or written to the log. The
    /// node then opens the directory again as a follower.
    ///
    /// # Errors
    /// A failed close of the index.
    pub fn end(&self) -> Result<()> {
        store_close::end_replicated(&self.shared)
    }
}
