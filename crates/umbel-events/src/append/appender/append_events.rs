//! Append of events to streams: decides about the append to each stream, then writes all of them or
//! none.

use crate::append::append_plan::AppendPlan;
use crate::append::append_request::{
    AppendRequest, CheckedMetadata, StreamAppend, StreamCheck, WriteResult,
};
use crate::append::expected_version_check::{ConflictCollector, Decision, StreamSnapshot, decide};
use crate::append::position_window::PositionWindow;
use crate::append::stream_history_reader::StreamHistoryReader;
use crate::append::written_prefix::WrittenPrefix;
use crate::index::stream_head::StreamHead;
use crate::limits::REVISION_MAX;
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};
use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_names;
use crate::types::version_conflict::{PresentEvents, RequestItem};

use super::undelete::MetadataWrites;
use super::{Appender, TaskOutcome, write_result};

/// Result of an append without events to a stream that does not exist.
const NOTHING_WRITTEN: WriteResult =
    WriteResult { first: None, last: None, position: None, is_retry: false };

/// Revision of the last event of an append, whose first gets this revision.
fn last_revision(first: u64, append: &StreamAppend<'_>) -> Result<u64> {
    let last = first + append.events.len() as u64 - 1;
    if last <= REVISION_MAX {
        return Ok(last);
    }
    Err(Error::invalid("the stream has the maximum number of events"))
}

impl Appender {
    pub(super) fn append(
        &mut self,
        parts: &StoreComponents,
        request: &AppendRequest<'_>,
        checked: &CheckedMetadata,
    ) -> Result<TaskOutcome> {
        // Before the probe of the filter, whose cache line is still being fetched.
        let created = self.created_now(parts)?;
        let mut results = Vec::with_capacity(request.appends.len());
        let mut plans: Vec<AppendPlan<'_>> = Vec::with_capacity(request.appends.len());
        let mut metadata = MetadataWrites::default();
        let mut rules = checked.rules();
        let mut rests_on = 0;
        let mut first_retry = None;
        let mut violations = ConflictCollector::default();
        for (index, append) in request.appends.iter().enumerate() {
            let (stream, expected) = (append.stream, append.expected);
            let hash = parts.existence.hash(stream);
            let retention = stream_names::metadata_subject(stream).and_then(|_| rules.next());
            if !self.defers_indexing {
                self.prefetch_id(append, || hash);
            }
            let known = self.snapshot_with_hash(parts, stream, hash, expected)?;
            let decided = self.decide(parts, append, (hash, checked.written(index)), &known);
            let part = RequestItem::Append(index);
            let Some(decided) = violations.collect(decided, part, expected, &known)? else {
                continue;
            };
            match decided {
                Decision::Append { first } => {
                    let last = last_revision(first, append)?;
                    let plan = (plans.len(), retention);
                    self.note_metadata(parts, append, &known, plan, &mut metadata)?;
                    let state = (hash, known.head);
                    plans.push(AppendPlan::of_append(append, state, first, retention));
                    results.push(write_result(first, last, false));
                }
                Decision::Retry { first, last, position } => {
                    let count = append.events.len() as u64;
                    let present = PresentEvents { first_revision: first, count, appended: count };
                    first_retry = first_retry.or(Some((part, append, known, present)));
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
        if let Some((part, append, known, present)) = first_retry {
            if plans.is_empty() && violations.is_empty() {
                return Ok(TaskOutcome::Done(results, rests_on));
            }
            // An atomic request cannot have been written in part.
            violations.add(part, append.stream, append.expected, &known, Some(present));
        }
        rests_on = rests_on.max(self.check_streams(parts, request.checks, &mut violations)?);
        violations.finish()?;
        if plans.is_empty() {
            return Ok(TaskOutcome::Done(results, rests_on));
        }
        metadata.remove_written(&plans);
        match metadata.is_empty() {
            true => self.commit_append(parts, created, &plans, 0, results),
            false => self.append_with_metadata(parts, created, plans, metadata, results),
        }
    }

    /// Collects the checks that are not met, and returns the position that the met checks depend
    /// on.
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
                violations.add(RequestItem::Check(index), stream, *expected, &known, None);
            }
            rests_on = rests_on.max(known.depends_on);
        }
        Ok(rests_on)
    }

    fn decide(
        &mut self,
        parts: &StoreComponents,
        append: &StreamAppend<'_>,
        (hash, written): (u64, Option<WrittenPrefix>),
        known: &StreamSnapshot,
    ) -> Result<Decision> {
        let mut history = StreamHistoryReader {
            components: parts,
            stream: append.stream,
            hash,
            head: known.head,
            recent_ids: &self.recent_ids,
            queue: &self.queue,
            pending_heads: &self.pending_heads,
            sees_deleted: false,
            cursor: &mut self.cursor,
            window: PositionWindow::default(),
            written,
        };
        decide(append.stream, known, append.expected, append.events, &mut history)
    }

    /// Returns the revision from which on a stream would have the events of an append if it were a
    /// retry, and the stream's head; `None` if it is none. The decision itself is left to
    /// [`decide`].
    pub fn retry_candidate(
        &mut self,
        parts: &StoreComponents,
        append: &StreamAppend<'_>,
    ) -> Option<(u64, StreamHead)> {
        let hash = parts.existence.hash(append.stream);
        let head = self.head_with_hash(parts, append.stream, hash).ok()??;
        let first = match append.expected {
            ExpectedVersion::Any | ExpectedVersion::Exists => {
                let position = self.recent_ids.find(hash, append.events.first()?.id)?;
                self.cursor.find_event(position).ok()??.meta.revision
            }
            ExpectedVersion::NoStream => 0,
            ExpectedVersion::Exact(revision) => revision.checked_add(1)?,
            _ => return None,
        };
        Some((first, head))
    }
}
