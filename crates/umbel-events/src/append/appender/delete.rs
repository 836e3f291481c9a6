//! Stream deletes and stream tombstones.

use std::borrow::Cow;

use crate::append::append_plan::AppendPlan;
use crate::append::append_request::WriteResult;
use crate::limits::TOMBSTONE_REVISION;
use crate::store_components::StoreComponents;
use crate::types::error::Result;
use crate::types::event::NewEvent;
use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_metadata::DELETED_TRUNCATE_BEFORE;
use crate::types::stream_names::{self, METADATA_TYPE, TOMBSTONE_TYPE};

use super::{Appender, TaskOutcome};

impl Appender {
    pub(super) fn delete(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
        expected: ExpectedVersion,
    ) -> Result<TaskOutcome> {
        let (_, mut known) = self.snapshot(parts, stream, expected)?;
        known.check_not_tombstoned(stream)?;
        let metadata_stream = stream_names::metadata_stream(stream);
        let metadata = self.head(parts, &metadata_stream)?;
        // Also of a stream with metadata but without events.
        known.retention = metadata.and_then(|metadata| metadata.retention_of(known.head));
        let last = known.last_revision();
        if last.is_none() && metadata.is_none() {
            return Err(known.conflict_error(stream, expected));
        }
        let done = |position| {
            vec![WriteResult { first: None, last, position: Some(position), is_retry: false }]
        };
        if let Some(metadata) = metadata.filter(|_| known.is_deleted()) {
            let is_other = match expected {
                ExpectedVersion::Exact(revision) => Some(revision) != last,
                expected => expected == ExpectedVersion::Exists,
            };
            if is_other {
                return Err(known.conflict_error(stream, expected));
            }
            let position = metadata.last_position;
            return Ok(TaskOutcome::Done(done(position), position));
        }
        if !known.matches(expected) {
            return Err(known.conflict_error(stream, expected));
        }
        let (data, rules) =
            self.undelete_metadata(metadata, &metadata_stream, DELETED_TRUNCATE_BEFORE)?;
        let events = [NewEvent::json(parts.new_id()?, METADATA_TYPE, &data)];
        let first = metadata.map_or(0, |head| head.last_revision + 1);
        let hash = parts.existence.hash(&metadata_stream);
        let stream = Cow::Borrowed(&metadata_stream[..]);
        let head = metadata;
        let retention = Some(rules);
        let follows = None;
        let plan = AppendPlan { stream, hash, head, follows, first, events: &events, retention };
        let Some(positions) = self.commit(parts, &[plan])? else {
            return Ok(TaskOutcome::NeedsFlush);
        };
        let position = positions.first().copied().unwrap_or(0);
        Ok(TaskOutcome::Done(done(position), position))
    }

    pub(super) fn tombstone(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
        expected: ExpectedVersion,
    ) -> Result<TaskOutcome> {
        let (hash, known) = self.snapshot(parts, stream, expected)?;
        known.check_not_tombstoned(stream)?;
        if !known.matches(expected) {
            return Err(known.conflict_error(stream, expected));
        }
        let events = [NewEvent::json(parts.new_id()?, TOMBSTONE_TYPE, b"{}")];
        let (first, head) = (TOMBSTONE_REVISION, known.head);
        let (stream, follows) = (Cow::Borrowed(stream), None);
        // A metadata stream has no tombstone.
        let retention = None;
        let plan = AppendPlan { stream, hash, head, follows, first, events: &events, retention };
        let Some(positions) = self.commit(parts, &[plan])? else {
            return Ok(TaskOutcome::NeedsFlush);
        };
        let position = positions.first().copied().unwrap_or(0);
        let result = WriteResult {
            first: None,
            last: known.last_revision(),
            position: Some(position),
            is_retry: false,
        };
        Ok(TaskOutcome::Done(vec![result], position))
    }
}
