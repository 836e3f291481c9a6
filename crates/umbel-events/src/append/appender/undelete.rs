//! Metadata that an append writes beside its events, so that no deleted event becomes readable.
//!
//! An append to a deleted stream gets the stream's metadata before its events. Metadata without
//! `$tb` for a deleted stream is followed by the same metadata with `$tb`.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::append::append_plan::{self, AppendPlan};
use crate::append::append_request::{StreamAppend, WriteResult};
use crate::append::expected_version_check::StreamSnapshot;
use crate::event_log::event_format;
use crate::index::stream_head::StreamHead;
use crate::limits::{APPEND_BYTES_MAX, EVENT_BYTES_MAX};
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};
use crate::types::event::{EventId, NewEvent};
use crate::types::stream_metadata::{
    RetentionRules, restored_if_deleted, truncated_if_unset, with_truncate_before,
};
use crate::types::stream_names::{self, METADATA_TYPE};

use super::{Appender, TaskOutcome};

/// Metadata that one request writes beside the events of its clients.
#[derive(Debug, Default)]
pub(super) struct MetadataWrites {
    /// Metadata streams of deleted streams that the request creates again, and the `$tb` that each
    /// gets before the events.
    before: Vec<(String, u64)>,
    /// Plans whose metadata ends a deletion without a `$tb`, and the metadata that follows each.
    after: Vec<(usize, Vec<u8>, RetentionRules)>,
}

impl MetadataWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// Removes the metadata streams that the client itself writes.
    pub(super) fn remove_written(&mut self, plans: &[AppendPlan<'_>]) {
        if self.before.is_empty() {
            return;
        }
        let written: HashSet<&str> = plans.iter().map(|plan| &*plan.stream).collect();
        self.before.retain(|(stream, _)| !written.contains(&**stream));
    }
}

/// Metadata that precedes the plans of a request.
struct PrecedingMetadata {
    stream: String,
    head: Option<StreamHead>,
    id: EventId,
    data: Vec<u8>,
    rules: RetentionRules,
}

impl Appender {
    /// Notes which metadata an accepted append requires; its plan gets the index `plan`.
    pub(super) fn note_metadata(
        &mut self,
        parts: &StoreComponents,
        append: &StreamAppend<'_>,
        known: &StreamSnapshot,
        (plan, rules): (usize, Option<RetentionRules>),
        writes: &mut MetadataWrites,
    ) -> Result<()> {
        let next = |head: Option<StreamHead>| head.map_or(0, |head| head.last_revision + 1);
        if known.is_deleted() && known.head.is_some() {
            writes.before.push((stream_names::metadata_stream(append.stream), next(known.head)));
        }
        let Some(subject) = stream_names::metadata_subject(append.stream) else { return Ok(()) };
        let is_deleted = |rules: RetentionRules| rules.is_deleted();
        let Some(metadata) = known.head.filter(|head| head.retention.is_some_and(is_deleted))
        else {
            return Ok(());
        };
        let subject_head = self.head(parts, subject)?;
        let Some(last) = append.events.last() else { return Ok(()) };
        let following = match metadata.retention_of(subject_head).is_some_and(is_deleted) {
            true => {
                let first = next(subject_head);
                truncated_if_unset(last.data, first).map(|data| (data, first))
            }
            // A copy of the `$tb` of a deletion that did not apply to the stream's events.
            false => restored_if_deleted(last.data).map(|data| (data, 0)),
        };
        if let Some((data, truncate_before)) = following {
            check_metadata_bytes(append.stream, &data, last.data.len())?;
            let rules = RetentionRules { truncate_before, ..rules.unwrap_or_default() };
            writes.after.push((plan, data, rules));
        }
        Ok(())
    }

    /// Writes the plans, with the metadata that they require before and after them.
    pub(super) fn append_with_metadata(
        &mut self,
        parts: &StoreComponents,
        created: u64,
        plans: Vec<AppendPlan<'_>>,
        writes: MetadataWrites,
        results: Vec<WriteResult>,
    ) -> Result<TaskOutcome> {
        let mut bytes = append_plan::payload_bytes(&plans);
        let mut following = Vec::with_capacity(writes.after.len());
        for (index, data, rules) in &writes.after {
            let event = NewEvent::json(parts.new_id()?, METADATA_TYPE, data);
            bytes += event_format::frame_bytes(&plans[*index].stream, &event);
            check_undelete_bytes(&plans[*index].stream, bytes)?;
            following.push((*index, event, *rules));
        }
        let preceding = self.preceding_metadata(parts, writes.before, bytes)?;
        let events: Vec<_> = preceding
            .iter()
            .map(|metadata| NewEvent::json(metadata.id, METADATA_TYPE, &metadata.data))
            .collect();
        let before = preceding.len();
        let mut all: Vec<AppendPlan<'_>> =
            Vec::with_capacity(before + plans.len() + following.len());
        for (PrecedingMetadata { stream, head, rules, .. }, event) in preceding.iter().zip(&events)
        {
            let first = head.map_or(0, |head| head.last_revision + 1);
            let (hash, head, follows) = (parts.existence.hash(stream), *head, None);
            let (stream, retention) = (Cow::Borrowed(&stream[..]), Some(*rules));
            let events = std::slice::from_ref(event);
            all.push(AppendPlan { stream, hash, head, follows, first, events, retention });
        }
        all.extend(plans);
        for (index, event, rules) in &following {
            let followed = &all[before + index];
            let (stream, hash) = (followed.stream.clone(), followed.hash);
            let first = followed.first + followed.events.len() as u64;
            let (head, follows, retention) = (None, Some(before + index), Some(*rules));
            let events = std::slice::from_ref(event);
            all.push(AppendPlan { stream, hash, head, follows, first, events, retention });
        }
        self.commit_append(parts, created, &all, before, results)
    }

    /// Metadata of deleted streams, with another `$tb`. The plans of the request take `bytes`.
    fn preceding_metadata(
        &mut self,
        parts: &StoreComponents,
        streams: Vec<(String, u64)>,
        mut bytes: usize,
    ) -> Result<Vec<PrecedingMetadata>> {
        let mut metadata = Vec::with_capacity(streams.len());
        for (stream, truncate_before) in streams {
            let head = self.head(parts, &stream)?;
            let (data, rules) = self.undelete_metadata(head, &stream, truncate_before)?;
            let id = parts.new_id()?;
            let event = NewEvent::json(id, METADATA_TYPE, &data);
            bytes += event_format::frame_bytes(&stream, &event);
            // Before the next metadata is read: each may have megabytes.
            check_undelete_bytes(&stream, bytes)?;
            metadata.push(PrecedingMetadata { stream, head, id, data, rules });
        }
        Ok(metadata)
    }

    /// Data of the next event of the metadata stream `stream`, whose head is `head`, and the rules
    /// in it.
    pub(super) fn undelete_metadata(
        &mut self,
        head: Option<StreamHead>,
        stream: &str,
        truncate_before: u64,
    ) -> Result<(Vec<u8>, RetentionRules)> {
        let old = match head {
            Some(head) => Some(self.cursor.event_at(head.last_position)?.event.data),
            None => None,
        };
        let data = with_truncate_before(old, truncate_before);
        check_metadata_bytes(stream, &data, old.map_or(0, <[u8]>::len))?;
        // As a replay of the log reads them.
        let rules = RetentionRules::parse(subject_of(stream), &data).unwrap_or_default();
        Ok((data, rules))
    }
}

/// Returns an error where metadata that got a `$tb` is too long; it had `bytes_before` bytes.
fn check_metadata_bytes(stream: &str, data: &[u8], bytes_before: usize) -> Result<()> {
    if data.len() <= EVENT_BYTES_MAX.max(bytes_before) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the metadata of '{}' would have {} bytes with $tb, but may have {EVENT_BYTES_MAX}; \
         write shorter metadata first",
        subject_of(stream).escape_debug(),
        data.len()
    )))
}

/// Stream whose metadata this stream holds.
fn subject_of(stream: &str) -> &str {
    stream_names::metadata_subject(stream).unwrap_or(stream)
}

/// Returns an error where an append with the metadata up to that in `stream` has too many bytes.
fn check_undelete_bytes(stream: &str, bytes: usize) -> Result<()> {
    if bytes <= APPEND_BYTES_MAX {
        return Ok(());
    }
    let stream = subject_of(stream).to_string();
    let (bytes, max_bytes) = (bytes as u64, APPEND_BYTES_MAX as u64);
    Err(Error::UndeleteTooLarge { stream, bytes, max_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: each recreated stream was compared with each stream of the append, up to 10,000
    /// times 10,000.
    #[test]
    fn metadata_that_the_client_writes_is_not_copied() {
        let plan = |stream: String| AppendPlan {
            stream: Cow::Owned(stream),
            hash: 0,
            head: None,
            follows: None,
            first: 0,
            events: &[],
            retention: None,
        };
        let plans: Vec<_> = (0..10_000).map(|number| plan(format!("$$s{number}"))).collect();
        let before = (5000..15_000).map(|number| (format!("$$s{number}"), number)).collect();
        let mut writes = MetadataWrites { before, after: Vec::new() };
        writes.remove_written(&plans);
        assert_eq!(writes.before.len(), 5000);
        assert!(writes.before.iter().all(|(_, first)| *first >= 10_000));
    }
}
