//! Metadata of deleted streams that an append creates again; the log has the metadata before the
//! events.

use std::borrow::Cow;

use crate::append::append_plan::{self, AppendPlan};
use crate::append::append_request::WriteResult;
use crate::event_log::event_format;
use crate::index::stream_head::StreamHead;
use crate::limits::{APPEND_BYTES_MAX, EVENT_BYTES_MAX};
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};
use crate::types::event::NewEvent;
use crate::types::stream_metadata::with_truncate_before;
use crate::types::stream_names::{self, METADATA_TYPE};

use super::{Appender, TaskOutcome};

impl Appender {
    /// Writes the plans, preceded by the metadata of the streams that they undelete.
    pub(super) fn undelete_and_append(
        &mut self,
        parts: &StoreComponents,
        created: u64,
        plans: Vec<AppendPlan<'_>>,
        undeleted: Vec<(String, u64)>,
        results: Vec<WriteResult>,
    ) -> Result<TaskOutcome> {
        let mut metadata = Vec::with_capacity(undeleted.len());
        let mut bytes = append_plan::payload_bytes(&plans);
        for (stream, truncate_before) in undeleted {
            let head = self.head(parts, &stream)?;
            let data = self.undelete_metadata(head, &stream, truncate_before)?;
            let id = parts.new_id()?;
            let event = NewEvent::json(id, METADATA_TYPE, &data);
            bytes += event_format::frame_bytes(&stream, &event);
            // Before the next metadata is read: each may have megabytes.
            check_undelete_bytes(&stream, bytes)?;
            metadata.push((stream, head, id, data));
        }
        let events: Vec<_> = metadata
            .iter()
            .map(|(_, _, id, data)| NewEvent::json(*id, METADATA_TYPE, data))
            .collect();
        let before = metadata.len();
        let mut all: Vec<AppendPlan<'_>> = Vec::with_capacity(before + plans.len());
        for ((stream, head, ..), event) in metadata.iter().zip(&events) {
            let first = head.map_or(0, |head| head.last_revision + 1);
            let (hash, head) = (parts.existence.hash(stream), *head);
            let stream = Cow::Borrowed(&stream[..]);
            let events = std::slice::from_ref(event);
            all.push(AppendPlan { stream, hash, head, first, events });
        }
        all.extend(plans);
        self.commit_append(parts, created, &all, before, results)
    }

    /// Data of the next event of the metadata stream `stream`, whose head is `head`.
    pub(super) fn undelete_metadata(
        &mut self,
        head: Option<StreamHead>,
        stream: &str,
        truncate_before: u64,
    ) -> Result<Vec<u8>> {
        let old = match head {
            Some(head) => Some(self.cursor.event_at(head.last_position)?.event.data.to_vec()),
            None => None,
        };
        let data = with_truncate_before(old.as_deref(), truncate_before)?;
        let bytes_before = old.map_or(0, |old| old.len());
        if data.len() > EVENT_BYTES_MAX.max(bytes_before) {
            return Err(Error::invalid(format!(
                "the metadata of '{}' would have {} bytes with $tb, but may have \
                 {EVENT_BYTES_MAX}; write shorter metadata first",
                subject_of(stream).escape_debug(),
                data.len()
            )));
        }
        Ok(data)
    }
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
