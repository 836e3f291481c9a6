//! Writes accepted appends to the log, then to the index or to the queue of appends that wait for
//! the index.

use crate::append::append_plan::{self, AppendPlan};
use crate::append::append_request::{self, WriteResult};
use crate::append::index_commit::IndexCommit;
use crate::append::index_queue::{QueuePosition, QueuedAppends};
use crate::event_log::AppendStart;
use crate::event_log::event_format;
use crate::index::index_batch::IndexBatch;
use crate::index::index_changes::StreamChange;
use crate::limits::POSITION_MAX;
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};
use crate::types::stream_names;

use super::{Appender, TaskOutcome};

impl Appender {
    /// Writes the plans, and sets the positions in `results` for all but the first `before` plans.
    pub(super) fn commit_append(
        &mut self,
        parts: &StoreComponents,
        created: u64,
        plans: &[AppendPlan<'_>],
        before: usize,
        mut results: Vec<WriteResult>,
    ) -> Result<TaskOutcome> {
        let Some(positions) = self.commit_with_time(parts, plans, created)? else {
            return Ok(TaskOutcome::NeedsFlush);
        };
        let mut written = positions.iter().skip(before);
        for result in results.iter_mut().filter(|result| result.first.is_some()) {
            result.position = written.next().copied();
        }
        Ok(TaskOutcome::Done(results, positions.iter().copied().max().unwrap_or(0)))
    }

    /// Writes the plans to the log. Returns the position of each plan's last event. Returns `None`,
    /// and changes nothing, where there is no space yet.
    pub(super) fn commit(
        &mut self,
        parts: &StoreComponents,
        plans: &[AppendPlan<'_>],
    ) -> Result<Option<Vec<u64>>> {
        self.commit_with_time(parts, plans, self.created_now(parts)?)
    }

    /// Like [`Appender::commit`], with `created` as the events' creation time. REQUIRES: no event
    /// of the log has a later creation time.
    pub(super) fn commit_with_time(
        &mut self,
        parts: &StoreComponents,
        plans: &[AppendPlan<'_>],
        created: u64,
    ) -> Result<Option<Vec<u64>>> {
        if parts.index.views.is_full() {
            return Ok(None);
        }
        let payload_bytes = append_plan::payload_bytes(plans);
        // Larger records, whatever they are for, need chunks that no open accepts.
        append_request::check_append_bytes(payload_bytes)?;
        self.quota.check(&parts.log, self.chunk_writer.active_chunk(), plans)?;
        let frees_space = plans.iter().all(AppendPlan::frees_space);
        let is_full = self.chunk_writer.is_full(payload_bytes + self.chunk_writer.reserve_bytes())
            && (self.chunk_writer.is_full(payload_bytes) || !frees_space);
        if is_full {
            let durable = parts.index.durable_through()?;
            // A chunk without events may follow it: nothing would ever bring the index there.
            if durable < parts.log.last_chunk_start()
                && !(frees_space && parts.log.are_chunks_small_after(durable))
            {
                return Ok(None);
            }
            let mut roll = || self.chunk_writer.roll(&parts.log, payload_bytes, frees_space);
            match frees_space {
                true => parts.index.db().with_reserved_segment(roll)?,
                false => roll()?,
            }
            parts.background.request_flush();
        }
        let Some(beginning) = self.chunk_writer.append_start() else { return Ok(None) };
        let position = beginning.chunk_start + beginning.location.offset;
        let end = position + payload_bytes as u64;
        if end > POSITION_MAX {
            return Err(Error::invalid("the store has the maximum number of events"));
        }
        let lasts = self.write_plans(parts, plans, beginning, created)?;
        if self.chunk_writer.take_next_request() {
            parts.background.request_chunk();
        }
        Ok(Some(lasts))
    }

    /// Ends the chunk of the newest events, and continues the log in the next one. Returns `false`,
    /// and changes nothing, where the index must first have earlier events.
    pub fn end_chunk(&mut self, parts: &StoreComponents) -> Result<bool> {
        if !self.chunk_writer.has_events() {
            return Ok(true);
        }
        // A chunk without events may follow it: nothing would ever bring the index there.
        if parts.index.durable_through()? < parts.log.last_chunk_start() {
            return Ok(false);
        }
        let roll = || self.chunk_writer.roll(&parts.log, 0, true);
        parts.index.db().with_reserved_segment(roll)?;
        Ok(true)
    }

    /// Writes the plans at the end of the log, and their changes to the index or to the queue.
    /// Returns the position of each plan's last event.
    fn write_plans(
        &mut self,
        parts: &StoreComponents,
        plans: &[AppendPlan<'_>],
        beginning: AppendStart,
        created: u64,
    ) -> Result<Vec<u64>> {
        let position = beginning.chunk_start + beginning.location.offset;
        let at_once = !parts.sync_before_ack && !self.defers_indexing && self.queue.is_empty();
        let first = self.queue.next_position();
        let changes = if at_once { &mut self.changes } else { &mut self.queue.open_group.changes };
        let (before, earlier) = (changes.savepoint(), changes.len());
        self.buffer.clear();
        let made = (&mut *changes, &mut self.positions);
        let last_event =
            append_plan::encode_plans(&mut self.buffer, made, plans, beginning, created);
        let appended = self.chunk_writer.append(position, &self.buffer, last_event);
        if appended.is_err() {
            changes.roll_back(before);
        }
        let end = appended?;
        parts.visible.gate.record_append(end)?;
        self.last_created = created;
        parts.clock().note_created(created);
        self.recent_ids.begin_append(position);
        for (stream, position) in deletions(parts, changes.changes_from(earlier)) {
            self.recent_ids.insert_deletion(stream, position);
        }
        let mut written = self.positions.iter().copied();
        let mut lasts = Vec::with_capacity(plans.len());
        for plan in plans {
            let mut last = position;
            for (event, position) in plan.events.iter().zip(&mut written) {
                let bytes = event_format::frame_bytes(&plan.stream, event) as u64;
                self.recent_ids.insert(plan.hash, event.id, (position, bytes));
                last = position;
            }
            lasts.push(last);
        }
        let last = lasts.last().copied().unwrap_or(position);
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        if self.positions.capacity() > 1 << 17 {
            self.positions = Vec::new();
        }
        match at_once {
            true => self.index_now(parts, end, last)?,
            false => self.enqueue(parts, end, last, first)?,
        }
        Ok(lasts)
    }

    /// Indexes an append at once, or queues the append if the index cannot take it.
    fn index_now(&mut self, parts: &StoreComponents, end: u64, position: u64) -> Result<()> {
        let mut changes = std::mem::take(&mut self.changes);
        let applied = self.apply(parts, changes.iter(), (end, position));
        if applied.is_ok() {
            changes.clear();
            self.changes = changes;
        } else {
            let first = self.queue.next_position();
            self.queue.open_group = QueuedAppends { end, position, changes };
            self.pending_heads.record_open_changes(&self.queue, first);
        }
        applied
    }

    /// Records an append whose changes are the last in the queue.
    fn enqueue(
        &mut self,
        parts: &StoreComponents,
        end: u64,
        position: u64,
        first: QueuePosition,
    ) -> Result<()> {
        let open = &mut self.queue.open_group;
        (open.end, open.position) = (end, position);
        self.pending_heads.record_open_changes(&self.queue, first);
        if parts.visible.gate.as_replicated().is_some() {
            // A slot can end after any record.
            self.queue.end_group();
        }
        match parts.sync_before_ack || self.defers_indexing {
            true => Ok(()),
            // An earlier append could not be indexed; all later ones follow it in order.
            false => self.apply_queue(parts),
        }
    }

    /// Indexes the appends up to the last of their records, which has this end and whose last event
    /// has this position.
    fn apply<'a>(
        &mut self,
        parts: &StoreComponents,
        changes: impl Iterator<Item = StreamChange<'a>> + Clone,
        (end, position): (u64, u64),
    ) -> Result<()> {
        let commit = IndexCommit::begin_through(parts, end)?;
        let committed = commit.commit_changes(&mut self.batch, changes.clone(), position);
        if committed.is_err() {
            self.batch = IndexBatch::new(&parts.index);
        }
        committed?;
        commit.finish(position, changes.map(|change| change.hash))
    }

    /// Indexes the queued appends.
    pub fn apply_queue(&mut self, parts: &StoreComponents) -> Result<()> {
        let queue = self.queue.take_groups(u64::MAX);
        let Some(last) = queue.last() else { return Ok(()) };
        let changes = queue.iter().flat_map(|queued| queued.changes.iter());
        self.apply(parts, changes, (last.end, last.position))?;
        self.pending_heads.remove_indexed(&mut self.queue, &queue);
        self.queue.reuse_groups(queue);
        Ok(())
    }
}

/// Hashes of the streams that these changes delete, and the positions of the events that delete
/// them.
fn deletions<'a>(
    parts: &StoreComponents,
    changes: impl Iterator<Item = StreamChange<'a>>,
) -> impl Iterator<Item = (u64, u64)> {
    changes.filter_map(|change| {
        let subject = stream_names::metadata_subject(change.stream)?;
        change.head.retention.filter(|rules| rules.is_deleted())?;
        Some((parts.existence.hash(subject), change.head.last_position))
    })
}
