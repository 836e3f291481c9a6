//! [`Appender`]: checks streams, decides, and writes the log; the thread that holds it appends.

use std::borrow::Cow;
use std::sync::Arc;

use umbel_arena::PREFETCHES;
use umbel_existence::ExistenceReader;

use crate::append::append_decision::{Decision, StreamSnapshot, decide};
use crate::append::append_plan::{self, AppendPlan};
use crate::append::append_request::{AppendRequest, StreamAppend, StreamCheck, WriteResult};
use crate::append::conflict_collector::ConflictCollector;
use crate::append::index_queue::{IndexQueue, QueuePosition, QueuedAppends};
use crate::append::pending_heads::PendingHeads;
use crate::append::recent_event_ids::RecentEventIds;
use crate::append::store_components::StoreComponents;
use crate::append::stream_history::StreamHistoryReader;
use crate::event_log::event_format;
use crate::event_log::{AppendStart, LogCursor, LogEnd};
use crate::index::IndexBatch;
use crate::index::index_changes::{IndexChanges, StreamChange};
use crate::index::stream_head::StreamHead;
use crate::limits::{POSITION_MAX, REVISION_MAX};
use crate::types::error::{Error, Result};
use crate::types::expected_version::ExpectedVersion;
use crate::types::import_record::ImportTask;
use crate::types::stream_names;
use crate::types::version_conflict::RequestItem;

mod delete;
mod import_event;
mod undelete;

/// State that an appending thread needs.
#[derive(Debug)]
pub struct Appender {
    /// Write position of the log.
    pub log_end: LogEnd,
    /// Ids of the newest events.
    pub recent_ids: RecentEventIds,
    /// Appends that are in the log but not in the index, in order.
    pub queue: IndexQueue,
    /// Creation time of the newest event.
    pub last_created: u64,
    /// Whether appends stay queued until a thread applies the queue, even without syncs.
    pub defers_indexing: bool,
    pending_heads: PendingHeads,
    existence: ExistenceReader,
    buffer: Vec<u8>,
    /// Index changes of one append that is indexed at once.
    changes: IndexChanges,
    /// Positions of the events of the newest append.
    positions: Vec<u64>,
    metadata_name: String,
    batch: IndexBatch,
    cursor: LogCursor,
}

/// Outcome of an attempt.
#[derive(Debug)]
pub enum TaskOutcome {
    /// The events are in the log, perhaps from an earlier append. The result depends on this
    /// position, which must become visible first.
    Done(Vec<WriteResult>, u64),
    /// The chunk or memory is full. Earlier appends must be indexed first.
    NeedsFlush,
}

/// A task of the appender.
#[derive(Debug, Clone, Copy)]
pub enum WriteTask<'a> {
    /// Appends events.
    Append(AppendRequest<'a>),
    /// Deletes a stream, which may be created again.
    Delete(&'a str, ExpectedVersion),
    /// Deletes a stream for good.
    Tombstone(&'a str, ExpectedVersion),
    /// Appends an event of another store with its original id, time and revision.
    Import(&'a ImportTask<'a>),
}

impl Appender {
    /// Creates an appender at the end of a log that is completely indexed.
    pub fn new(parts: &StoreComponents, window: RecentEventIds, last_created: u64) -> Appender {
        Appender {
            log_end: LogEnd::default(),
            recent_ids: window,
            queue: IndexQueue::default(),
            last_created,
            defers_indexing: false,
            pending_heads: PendingHeads::default(),
            existence: parts.existence.reader(),
            buffer: Vec::new(),
            changes: IndexChanges::default(),
            positions: Vec::new(),
            metadata_name: String::new(),
            batch: parts.index.batch(),
            cursor: parts.log.cursor(),
        }
    }

    fn head(&mut self, parts: &StoreComponents, stream: &str) -> Result<Option<StreamHead>> {
        self.head_with_hash(parts, stream, parts.existence.hash(stream))
    }

    fn head_with_hash(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
        hash: u64,
    ) -> Result<Option<StreamHead>> {
        let ahead = self.pending_heads.head(&self.queue, hash, stream);
        #[cfg(feature = "canary")]
        let ahead =
            ahead.filter(|_| !umbel_base::failpoint::Failpoint::EventsAheadForgotten.is_enabled());
        if ahead.is_some() {
            return Ok(ahead);
        }
        match self.existence.may_contain(hash) {
            true => Ok(parts.head_past_filter(stream)?),
            false => Ok(None),
        }
    }

    /// Returns the hash of the stream's name and the state that its expected version is checked
    /// against.
    fn snapshot(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
        expected: ExpectedVersion,
    ) -> Result<(u64, StreamSnapshot)> {
        let hash = parts.existence.hash(stream);
        Ok((hash, self.snapshot_with_hash(parts, stream, hash, expected)?))
    }

    /// Returns the state of the stream whose name has this hash.
    fn snapshot_with_hash(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
        hash: u64,
        expected: ExpectedVersion,
    ) -> Result<StreamSnapshot> {
        let head = self.head_with_hash(parts, stream, hash)?;
        let rests_on = head.map_or(0, |head| head.last_position);
        let known = StreamSnapshot { head, retention: None, depends_on: rests_on };
        if let Some(subject) = stream_names::metadata_subject(stream) {
            if let Some(other) = self.head(parts, subject)? {
                StreamSnapshot { head: Some(other), ..known }.check_not_tombstoned(subject)?;
            }
            return Ok(known);
        }
        if head.is_none() && expected != ExpectedVersion::Exists {
            // Metadata that hides events does not affect a stream without events.
            return Ok(known);
        }
        let mut name = std::mem::take(&mut self.metadata_name);
        stream_names::write_metadata_stream(stream, &mut name);
        let metadata = self.head(parts, &name);
        self.metadata_name = name;
        let Some(metadata) = metadata? else { return Ok(known) };
        let rests_on = rests_on.max(metadata.last_position);
        Ok(StreamSnapshot { head, retention: metadata.retention_of(head), depends_on: rests_on })
    }

    /// Position of the last queued append to this stream, its metadata stream or the stream whose
    /// metadata it holds; `None` without one.
    pub fn last_pending_position(&self, parts: &StoreComponents, stream: &str) -> Option<u64> {
        let head =
            |name: &str| self.pending_heads.head(&self.queue, parts.existence.hash(name), name);
        let is_ahead = |name: &str| head(name).is_some();
        let is_concerned = is_ahead(stream)
            || is_ahead(&stream_names::metadata_stream(stream))
            || stream_names::metadata_subject(stream).is_some_and(is_ahead);
        self.queue.groups().next_back().filter(|_| is_concerned).map(|last| last.position)
    }

    /// Executes the task up to the log write.
    pub fn try_execute(
        &mut self,
        parts: &StoreComponents,
        task: &WriteTask<'_>,
    ) -> Result<TaskOutcome> {
        match task {
            WriteTask::Append(request) => self.append(parts, request),
            WriteTask::Delete(stream, expected) => self.delete(parts, stream, *expected),
            WriteTask::Tombstone(stream, expected) => self.tombstone(parts, stream, *expected),
            WriteTask::Import(task) => self.import(parts, task),
        }
    }

    /// Prefetches the slots of the appends' ids in the window of recent ids.
    pub fn prefetch(&self, parts: &StoreComponents, request: &AppendRequest<'_>) {
        for append in request.appends_to_prefetch() {
            self.prefetch_id(append, || parts.existence.hash(append.stream));
        }
    }

    fn prefetch_id(&self, append: &StreamAppend<'_>, hash: impl FnOnce() -> u64) {
        let is_looked_for =
            matches!(append.expected, ExpectedVersion::Any | ExpectedVersion::Exists);
        if let Some(first) = append.events.first().filter(|_| PREFETCHES) {
            self.recent_ids.prefetch(hash(), first.id, is_looked_for);
        }
    }

    fn append(
        &mut self,
        parts: &StoreComponents,
        request: &AppendRequest<'_>,
    ) -> Result<TaskOutcome> {
        // Before the probe of the filter, whose cache line is still being fetched.
        let created = self.created_now(parts);
        let mut results = Vec::with_capacity(request.appends.len());
        let mut plans: Vec<AppendPlan<'_>> = Vec::with_capacity(request.appends.len());
        let mut undeleted = Vec::new();
        let mut rests_on = 0;
        let mut first_retry = None;
        let mut violations = ConflictCollector::default();
        for (index, append) in request.appends.iter().enumerate() {
            let (stream, expected) = (append.stream, append.expected);
            let hash = parts.existence.hash(stream);
            if !self.defers_indexing {
                self.prefetch_id(append, || hash);
            }
            let known = self.snapshot_with_hash(parts, stream, hash, expected)?;
            let decided = self.decide(parts, append, hash, &known);
            let part = RequestItem::Append(index);
            let Some(decided) = violations.collect(decided, part, expected, &known)? else {
                continue;
            };
            match decided {
                Decision::Append { first } => {
                    let last = first + append.events.len() as u64 - 1;
                    if last > REVISION_MAX {
                        return Err(Error::invalid("the stream has the maximum number of events"));
                    }
                    if known.is_deleted() && known.head.is_some() {
                        undeleted.push((stream_names::metadata_stream(stream), first));
                    }
                    let (head, events) = (known.head, append.events);
                    let stream = Cow::Borrowed(stream);
                    plans.push(AppendPlan { stream, hash, head, first, events });
                    results.push(write_result(first, last, false));
                }
                Decision::Retry { first, last, position } => {
                    first_retry = first_retry.or(Some((part, append, known)));
                    rests_on = rests_on.max(position);
                    let position = Some(position);
                    results.push(WriteResult { position, ..write_result(first, last, true) });
                }
                Decision::NoEvents => {
                    let last = known.last_revision();
                    rests_on = rests_on.max(known.depends_on);
                    results.push(WriteResult { last, ..NOTHING_WRITTEN });
                }
            }
        }
        if let Some((part, append, known)) = first_retry {
            if plans.is_empty() && violations.is_empty() {
                return Ok(TaskOutcome::Done(results, rests_on));
            }
            // An atomic request cannot have been written in part.
            violations.add(part, append.stream, append.expected, &known);
        }
        rests_on = rests_on.max(self.check_streams(parts, request.checks, &mut violations)?);
        violations.finish()?;
        if plans.is_empty() {
            return Ok(TaskOutcome::Done(results, rests_on));
        }
        undeleted.retain(|(stream, _)| plans.iter().all(|plan| plan.stream != *stream));
        self.write_with_undeletes(parts, created, plans, undeleted, results)
    }

    /// Collects unmet checks, and returns the position that the met ones depend on.
    fn check_streams(
        &mut self,
        parts: &StoreComponents,
        checks: &[StreamCheck<'_>],
        violations: &mut ConflictCollector,
    ) -> Result<u64> {
        let mut rests_on = 0;
        for (index, StreamCheck { stream, expected }) in checks.iter().enumerate() {
            let (_, known) = self.snapshot(parts, stream, *expected)?;
            if !known.matches_check(*expected) {
                violations.add(RequestItem::Check(index), stream, *expected, &known);
            }
            rests_on = rests_on.max(known.depends_on);
        }
        Ok(rests_on)
    }

    fn decide(
        &mut self,
        parts: &StoreComponents,
        append: &StreamAppend<'_>,
        hash: u64,
        known: &StreamSnapshot,
    ) -> Result<Decision> {
        let mut written = StreamHistoryReader {
            components: parts,
            stream: append.stream,
            hash,
            head: known.head,
            recent_ids: &self.recent_ids,
            queue: &self.queue,
            cursor: &mut self.cursor,
        };
        decide(append.stream, known, append.expected, append.events, &mut written)
    }

    /// Writes the plans to the log. Returns the position of each plan's last event. Returns `None`,
    /// and changes nothing, where there is no space yet.
    fn commit(
        &mut self,
        parts: &StoreComponents,
        plans: &[AppendPlan<'_>],
    ) -> Result<Option<Vec<u64>>> {
        self.commit_with_time(parts, plans, self.created_now(parts))
    }

    /// Creation time of an event that is appended now, in ticks of 100 ns.
    fn created_now(&self, parts: &StoreComponents) -> u64 {
        parts.env.clock.wall_micros().saturating_mul(10).max(self.last_created)
    }

    /// Does the same as [`Appender::commit`], with `created` as the events' creation time.
    /// REQUIRES: no event has a later creation time.
    fn commit_with_time(
        &mut self,
        parts: &StoreComponents,
        plans: &[AppendPlan<'_>],
        created: u64,
    ) -> Result<Option<Vec<u64>>> {
        if parts.index.views.is_full() {
            return Ok(None);
        }
        let payload_bytes = append_plan::payload_bytes(plans);
        let frees_space = plans.iter().all(AppendPlan::frees_space);
        let is_full = self.log_end.is_full(payload_bytes + self.log_end.reserve_bytes())
            && (self.log_end.is_full(payload_bytes) || !frees_space);
        if is_full {
            let durable = parts.index.durable_through()?;
            // A chunk without events may follow it: nothing would ever bring the index there.
            if durable < parts.log.last_chunk_start()
                && !(frees_space && parts.log.are_chunks_small_after(durable))
            {
                return Ok(None);
            }
            let mut roll = || self.log_end.roll(&parts.log, payload_bytes, frees_space);
            match frees_space {
                true => parts.index.db().with_reserved_segment(roll)?,
                false => roll()?,
            }
            parts.background.request_flush();
        }
        let Some(beginning) = self.log_end.append_start() else { return Ok(None) };
        let position = beginning.chunk_start + beginning.location.offset;
        let end = position + payload_bytes as u64;
        if end > POSITION_MAX {
            return Err(Error::invalid("the store has the maximum number of events"));
        }
        let lasts = self.write_plans(parts, plans, beginning, created)?;
        if self.log_end.take_next_request() {
            parts.background.request_chunk();
        }
        Ok(Some(lasts))
    }

    /// Writes the plans at the end of the log and into the index, or into the queue. Returns the
    /// position of each plan's last event.
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
        let before = changes.savepoint();
        self.buffer.clear();
        let made = (&mut *changes, &mut self.positions);
        let last_event =
            append_plan::encode_plans(&mut self.buffer, made, plans, beginning, created);
        let end = position + self.buffer.len() as u64;
        let appended = self.log_end.append(position, &self.buffer, last_event);
        if appended.is_err() {
            changes.roll_back(before);
        }
        appended?;
        self.last_created = created;
        self.recent_ids.begin_append(position);
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

    /// Indexes an append at once, or queues it where that fails.
    fn index_now(&mut self, parts: &StoreComponents, end: u64, position: u64) -> Result<()> {
        let mut changes = std::mem::take(&mut self.changes);
        let applied = self.apply(parts, changes.iter(), position);
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
        match parts.sync_before_ack || self.defers_indexing {
            true => Ok(()),
            // An earlier append could not be indexed; all later ones follow it in order.
            false => self.apply_queue(parts),
        }
    }

    fn apply<'a>(
        &mut self,
        parts: &StoreComponents,
        changes: impl Iterator<Item = StreamChange<'a>> + Clone,
        position: u64,
    ) -> Result<()> {
        for change in changes.clone() {
            parts.index.add(&mut self.batch, &change);
        }
        let committed = parts.index.commit(&mut self.batch, (&parts.log, position));
        if committed.is_err() {
            self.batch = parts.index.batch();
        }
        committed?;
        parts.update_views_and_filter(changes.clone());
        parts.visible.advance(position, changes.map(|change| change.hash));
        Ok(())
    }

    /// Indexes the queued appends.
    pub fn apply_queue(&mut self, parts: &StoreComponents) -> Result<()> {
        let queue = self.queue.take_groups();
        let Some(last) = queue.last() else { return Ok(()) };
        let changes = queue.iter().flat_map(|queued| queued.changes.iter());
        self.apply(parts, changes, last.position)?;
        self.remove_indexed(&queue);
        self.queue.reuse_groups(queue);
        Ok(())
    }

    /// Removes indexed appends from the queue, of which they are the first.
    pub fn remove_indexed(&mut self, done: &[Arc<QueuedAppends>]) {
        self.pending_heads.remove_indexed(&self.queue, done);
        self.queue.remove_groups(done.len());
    }
}

/// Result of an append without events to a stream that does not exist.
const NOTHING_WRITTEN: WriteResult =
    WriteResult { first: None, last: None, position: None, is_retry: false };

fn write_result(first: u64, last: u64, is_retry: bool) -> WriteResult {
    WriteResult { first: Some(first), last: Some(last), position: None, is_retry }
}
