//! Import of an event, which keeps its revision of the source store; an existing event is skipped.

use std::borrow::Cow;

use crate::append::append_plan::AppendPlan;
use crate::append::expected_version_check::{StreamHistory, StreamSnapshot};
use crate::append::position_window::PositionWindow;
use crate::append::stream_history_reader::StreamHistoryReader;
use crate::index::stream_head::StreamHead;
use crate::limits::{REVISION_MAX, TOMBSTONE_REVISION};
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};
use crate::types::event::EventId;
use crate::types::imported_event::ImportTask;
use crate::types::stream_names::TOMBSTONE_TYPE;

use super::{Appender, TaskOutcome, write_result};

impl Appender {
    /// Appends the event where it continues its stream.
    pub(super) fn import(
        &mut self,
        parts: &StoreComponents,
        task: &ImportTask<'_>,
    ) -> Result<TaskOutcome> {
        let (stream, event) = (task.event.stream, task.event.event);
        let hash = parts.existence.hash(stream);
        let head = self.head_with_hash(parts, stream, hash)?;
        let known = StreamSnapshot { head, retention: None, depends_on: 0 };
        let last = known.last_revision();
        let there = self.resolve_revision(parts, task, hash, head)?;
        if let Some((revision, id, position)) = there {
            if id != event.id {
                return Err(conflicting_event_error(stream, revision, id));
            }
            let was_there = write_result(revision, revision, true);
            let results = vec![super::WriteResult { position: Some(position), ..was_there }];
            return Ok(TaskOutcome::Done(results, position));
        }
        known.check_not_tombstoned(stream)?;
        let next = last.map_or(0, |last| last + 1);
        let first = task.event.revision.unwrap_or(next);
        if first < next {
            return Err(Error::invalid(format!(
                "stream '{}' accepts no event with revision {first} any more, because its last \
                 revision is {}; import into a store without other writers of this stream",
                stream.escape_debug(),
                next - 1
            )));
        }
        if first > REVISION_MAX && first != TOMBSTONE_REVISION {
            return Err(Error::invalid(format!(
                "revision {first} is above {REVISION_MAX}, the highest possible revision"
            )));
        }
        if first == TOMBSTONE_REVISION && event.kind != TOMBSTONE_TYPE {
            return Err(Error::invalid(format!(
                "revision {first} is the revision of a tombstone, so the event's type must be \
                 '{TOMBSTONE_TYPE}', but is '{}'",
                event.kind.escape_debug()
            )));
        }
        let wanted = match task.event.created {
            Some(created) => created,
            None => self.created_now(parts)?,
        };
        let created = wanted.max(self.last_created);
        let events = [event];
        let (stream, follows) = (Cow::Borrowed(stream), None);
        let retention = task.retention;
        let plan = AppendPlan { stream, hash, head, follows, first, events: &events, retention };
        let Some(positions) = self.commit_with_time(parts, &[plan], created)? else {
            return Ok(TaskOutcome::NeedsFlush);
        };
        if task.event.created.is_some() {
            task.time_adjustment.set(created - wanted);
        }
        if first != TOMBSTONE_REVISION {
            task.missing_revisions.set(first - next);
        }
        let position = positions.first().copied().unwrap_or(0);
        let results = vec![super::WriteResult {
            position: Some(position),
            ..write_result(first, first, false)
        }];
        Ok(TaskOutcome::Done(results, position))
    }

    /// Revision, id and position of the existing event at this event's revision. For an event
    /// without a revision: revision, id and position of a recent event with its id.
    fn resolve_revision(
        &mut self,
        parts: &StoreComponents,
        task: &ImportTask<'_>,
        hash: u64,
        head: Option<StreamHead>,
    ) -> Result<Option<(u64, EventId, u64)>> {
        let Some(present) = head else { return Ok(None) };
        if task.event.revision == Some(TOMBSTONE_REVISION) {
            if !present.is_tombstoned {
                return Ok(None);
            }
            let position = present.last_position;
            let id = self.cursor.event_at(position)?.event.id;
            return Ok(Some((TOMBSTONE_REVISION, id, position)));
        }
        let mut looking = StreamHistoryReader {
            components: parts,
            stream: task.event.stream,
            hash,
            head,
            recent_ids: &self.recent_ids,
            queue: &self.queue,
            pending_heads: &self.pending_heads,
            sees_deleted: true,
            cursor: &mut self.cursor,
            window: PositionWindow::default(),
            written: None,
        };
        let revision = match task.event.revision {
            Some(revision) => Some(revision),
            None => looking.recent_revision(task.event.event.id)?,
        };
        let Some(revision) = revision else { return Ok(None) };
        Ok(looking.event(revision)?.map(|(id, position)| (revision, id, position)))
    }
}

fn conflicting_event_error(stream: &str, revision: u64, id: EventId) -> Error {
    let name = stream.escape_debug();
    let which = match revision {
        TOMBSTONE_REVISION => format!("stream '{name}' was tombstoned with another event"),
        _ => format!("stream '{name}' has another event with revision {revision}"),
    };
    Error::invalid(format!(
        "{which}, whose id is {id}; import into a store in which the stream is not written to"
    ))
}
