//! Metadata of deleted streams that an append creates again; it precedes the events.

use std::borrow::Cow;

use crate::append::append_plan::AppendPlan;
use crate::append::append_request::WriteResult;
use crate::index::stream_head::StreamHead;
use crate::store_components::StoreComponents;
use crate::types::error::Result;
use crate::types::event::NewEvent;
use crate::types::stream_metadata::with_truncate_before;
use crate::types::stream_names::METADATA_TYPE;

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
        for (stream, truncate_before) in undeleted {
            let head = self.head(parts, &stream)?;
            let data = self.undelete_metadata(head, truncate_before)?;
            metadata.push((stream, head, parts.new_id()?, data));
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

    pub(super) fn undelete_metadata(
        &mut self,
        head: Option<StreamHead>,
        truncate_before: u64,
    ) -> Result<Vec<u8>> {
        let old = match head {
            Some(head) => Some(self.cursor.event_at(head.last_position)?.event.data.to_vec()),
            None => None,
        };
        with_truncate_before(old.as_deref(), truncate_before)
    }
}
