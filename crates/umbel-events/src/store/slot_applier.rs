//! [`SlotApplier`]: feeds the store of a follower from slots. Experimental.
//!
//! A slot goes through these steps, and the next one begins after the last of them:
//!
//! 1. the slot follows the last one, and has only what this Umbel applies;
//! 2. its chunks and records go into the log, with the bytes that its leader wrote;
//! 3. the log is synced;
//! 4. the gate and the record of the replica have the slot;
//! 5. the index has its events, which become visible.

use std::path::Path;
use std::sync::Arc;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_slots::{ChainState, LogId, LogPoint, ObjectContent, Slot, SlotEntry, SlotSettings};

use crate::append::appender::{Appender, FollowedRecords};
use crate::append::index_commit::IndexCommit;
use crate::event_log::ChunkBeginning;
use crate::event_log::clock_epochs::ClockEpoch;
use crate::event_log::replica_file::{EVENT_LOG_KIND, ReplicaRecord};
use crate::index::index_batch::IndexBatch;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::visibility::index_gate::ReplicatedGate;

/// Feeds the store of a follower from slots. Returned by
/// [`Store::open_replica`](crate::Store::open_replica). It does not keep the store open.
#[derive(Debug)]
pub struct SlotApplier {
    shared: Arc<StoreInner>,
    /// Error of a slot that was applied in part.
    failure: Option<String>,
}

/// Changes of a slot to the log.
#[derive(Debug, Clone, Copy, Default)]
struct LogChanges {
    /// Whether the log has more bytes.
    is_written: bool,
    /// Whether a chunk began.
    has_new_chunk: bool,
}

impl SlotApplier {
    pub(crate) fn new(shared: &Arc<StoreInner>) -> SlotApplier {
        SlotApplier { shared: Arc::clone(shared), failure: None }
    }

    /// The chain up to the last applied slot, with the settings that hold after it.
    ///
    /// # Errors
    /// An error in a forked child.
    pub fn chain(&self) -> Result<ChainState> {
        self.shared.check_process()?;
        Ok(self.replica()?.state().chain)
    }

    /// Directory into which the open moved the records of this node that no recorded slot has;
    /// `None` if there were none. Later slots can have them.
    pub fn moved_aside(&self) -> Option<&Path> {
        self.shared.replica.as_ref()?.moved_aside.as_deref()
    }

    /// Applies the next slot: its events are durable, and visible to readers and subscriptions.
    ///
    /// # Errors
    /// - `Invalid`, with nothing changed, if the slot does not follow the last one, has contents
    ///   that this Umbel does not apply, or if the store leads or is closed.
    /// - `Invalid` or `Corruption` if the slot does not fit the log of this node, or failed calls.
    ///   The slot can be applied in part then. Every later call fails until the store is opened
    ///   again, which removes this part.
    pub fn apply(&mut self, slot: &Slot) -> Result<()> {
        self.check_next(slot)?;
        let applied = self.apply_next(slot);
        let applied = self.shared.damage.record(applied);
        if let Err(error) = &applied {
            self.failure = Some(error.to_string());
        }
        applied
    }

    /// Writes the record of the last applied slot, so that an open continues after it.
    ///
    /// # Errors
    /// A failed write. The next call repeats it.
    pub fn record(&self) -> Result<()> {
        self.shared.check_writable()?;
        Ok(self.replica()?.write()?)
    }

    fn replica(&self) -> Result<&ReplicaRecord> {
        let replica = self.shared.replica.as_deref();
        replica.ok_or_else(|| Error::invalid("internal: the event store is no replica"))
    }

    fn gate(&self) -> Result<&ReplicatedGate> {
        let gate = self.shared.visible.gate.as_replicated();
        gate.ok_or_else(|| Error::invalid("internal: the event store is not replicated"))
    }

    /// Returns an error where the slot cannot be applied next.
    fn check_next(&self, slot: &Slot) -> Result<()> {
        self.shared.check_writable()?;
        self.gate()?.check_follows()?;
        if let Some(reason) = &self.failure {
            return Err(Error::invalid(format!(
                "this node applies no more slots until its event store is opened again: {reason}"
            )));
        }
        let number = slot.number;
        let replica = self.replica()?;
        if replica.change(|state| state.store != slot.ids.store) {
            let reason = format!("slot {number} belongs to another replicated log");
            return Err(Error::invalid(reason));
        }
        let follows = replica.change(|state| state.chain.check_next(slot));
        follows.map_err(|reason| {
            Error::invalid(format!("slot {number} does not follow on this node: {reason}"))
        })?;
        slot.entries.iter().try_for_each(|entry| check_supported(number, entry))?;
        let possible = slot.check_entries();
        possible.map_err(|reason| Error::invalid(format!("slot {number}: {reason}")))?;
        if self.shared.index.views.is_full() {
            self.shared.flush_without_slots()?;
        }
        Ok(())
    }

    fn apply_next(&self, slot: &Slot) -> Result<()> {
        let shared = &self.shared;
        let driver = shared.index_lock.lock().ignore_poison();
        let mut followed = FollowedRecords::new(slot.number);
        let changes = write_log(shared, slot, &mut followed)?;
        if changes.is_written {
            // One slot before the next, so that an open cuts the log between two slots.
            shared.sync_log()?;
        }
        let replica = self.replica()?;
        let advanced = replica.change(|state| state.advance(slot));
        advanced.map_err(|reason| Error::invalid(format!("slot {}: {reason}", slot.number)))?;
        let gate = self.gate()?;
        let offset = followed.last.map_or(gate.in_slots().offset, |(_, end)| end);
        gate.slot_applied(LogPoint { epoch: slot.epoch, offset })?;
        if let Some((last, _)) = followed.last {
            let commit = IndexCommit::begin(shared)?;
            let mut batch = IndexBatch::new(&shared.index);
            commit.commit_changes(&mut batch, followed.changes.iter(), last)?;
            commit.finish(last, followed.changes.iter().map(|change| change.hash))?;
        }
        drop(driver);
        // Subscriptions wake by the hashes of the streams.
        shared.visible.notify();
        shared.callbacks.run_visible(&shared.components);
        self.keep_up(replica, changes);
        Ok(())
    }

    /// Makes the index and the record of the last slot durable from time to time. A failure is
    /// repeated later: an open then applies more slots again.
    fn keep_up(&self, replica: &ReplicaRecord, changes: LogChanges) {
        let shared = &self.shared;
        if changes.has_new_chunk || shared.index.views.needs_flush() {
            // So the catch-up of an open reads two chunks at most.
            let _ = shared.damage.record(shared.flush_without_slots());
        }
        let _ = replica.write_if_late();
    }
}

/// Returns an error for an entry that this Umbel does not apply.
fn check_supported(number: u64, entry: &SlotEntry) -> Result<()> {
    let unsupported = match entry {
        SlotEntry::LogBegins { log, .. }
        | SlotEntry::Bytes { log, .. }
        | SlotEntry::LogEnded { log, .. }
            if log.kind != EVENT_LOG_KIND =>
        {
            format!("records of a log of kind {}", log.kind)
        }
        SlotEntry::Object { name, content: ObjectContent::Replacement { .. }, .. } => {
            format!("the scavenged chunk {}", name.as_str())
        }
        SlotEntry::Object { name, content: ObjectContent::Records { .. }, .. } => {
            format!("the long record {}", name.as_str())
        }
        SlotEntry::Settings(settings)
            if settings.derivation != SlotSettings::default().derivation =>
        {
            format!("settings with the version {} of the derivation", settings.derivation)
        }
        SlotEntry::LogBegins { .. }
        | SlotEntry::Bytes { .. }
        | SlotEntry::LogEnded { .. }
        | SlotEntry::EpochBegins { .. }
        | SlotEntry::ClockEpochBegins { .. }
        | SlotEntry::Settings(_)
        | SlotEntry::UploadBegins { .. }
        | SlotEntry::Snapshot { .. }
        | SlotEntry::Nothing
        | SlotEntry::Resigned => return Ok(()),
    };
    Err(Error::invalid(format!(
        "slot {number} has {unsupported}, which this Umbel does not apply yet; use a newer one"
    )))
}

/// Writes the entries of a slot into the log, in their order.
fn write_log(
    shared: &StoreInner,
    slot: &Slot,
    followed: &mut FollowedRecords,
) -> Result<LogChanges> {
    let mut appender = shared.appender.lock().ignore_poison();
    let Some(appender) = &mut *appender else { return Err(umbel::Error::Closed.into()) };
    let mut changes = LogChanges::default();
    for entry in &slot.entries {
        match entry {
            SlotEntry::LogBegins { log, start, capacity, key } => {
                let LogId { id, .. } = *log;
                let (start, capacity, key) = (*start, *capacity, *key);
                let begins = ChunkBeginning { id, start, capacity, key };
                let begun = appender.chunk_writer.begin_chunk(&shared.log, &begins);
                begun.map_err(|error| of_slot(slot.number, error))?;
                changes.has_new_chunk = true;
            }
            SlotEntry::Bytes { log, from, bytes } => {
                appender.follow_records(shared, (log.id, *from), bytes, followed)?;
            }
            SlotEntry::LogEnded { log, end, mark, running } => {
                end_chunk(shared, appender, followed, (log.id, *end), (*mark, *running))?;
            }
            SlotEntry::ClockEpochBegins { position, start } => {
                let epoch = ClockEpoch { position: *position, start: *start };
                let begun = shared.log.begin_epoch(epoch);
                begun.map_err(|error| of_slot(slot.number, error))?;
                appender.note_created(shared, *start);
                continue;
            }
            _ => continue,
        }
        changes.is_written = true;
    }
    Ok(changes)
}

/// Ends the current chunk as its leader did, if it has the same records (B18).
fn end_chunk(
    shared: &StoreInner,
    appender: &mut Appender,
    followed: &FollowedRecords,
    (id, end): (u64, u64),
    (mark, running): (u32, u64),
) -> Result<()> {
    let writer = &mut appender.chunk_writer;
    let chunk = writer.active_chunk().filter(|chunk| chunk.id == id);
    let (Some(chunk), Some((own, own_end))) = (chunk, writer.running_checksum()) else {
        return Err(followed.refusal(id, end, "this chunk is not the current one"));
    };
    if own_end != end {
        let reason = format!("the chunk ends here, but this node has records up to {own_end}");
        return Err(followed.refusal(id, end, &reason));
    }
    if own != running {
        let slot = followed.slot();
        let reason = format!(
            "slot {slot} ends chunk {id} with the running checksum {running:016x}, but its records \
             on this node have {own:016x}: they differ from those of the other nodes; move the \
             directory away, and start the node with an empty one"
        );
        return Err(umbel::Error::corruption(&chunk.path, end, reason).into());
    }
    Ok(writer.end_chunk_with_mark(&shared.log, mark)?)
}

/// Adds the number of the slot to a refusal.
fn of_slot(number: u64, error: umbel::Error) -> Error {
    match Error::from(error) {
        Error::Invalid(reason) => Error::Invalid(format!("slot {number}: {reason}")),
        error => error,
    }
}
