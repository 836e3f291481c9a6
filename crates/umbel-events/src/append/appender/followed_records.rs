//! Records that a follower gets from slots: they go into the log as they are, and their events into
//! the window of recent ids (B19 of `docs/explanation/replication.md`) and the index.

use std::collections::HashMap;

use umbel_log::{Record, RecordBinding, record_at, stated_bytes};

use crate::append::append_plan;
use crate::event_log::event_format::{Frame, FrameLocation, Frames, RECORD_GAP_BYTES};
use crate::index::index_changes::IndexChanges;
use crate::index::stream_head::StreamHead;
use crate::limits::TOMBSTONE_REVISION;
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};

use super::Appender;

/// Records of one slot that are in the log, and not in the index yet.
#[derive(Debug)]
pub struct FollowedRecords {
    /// Number of the slot, for messages.
    slot: u64,
    /// Index changes of their events.
    pub changes: IndexChanges,
    /// Heads of the streams after these changes.
    heads: HashMap<String, StreamHead>,
    /// Position of their last event, and the position after the last record; `None` without
    /// records.
    pub last: Option<(u64, u64)>,
}

/// Place of a record in the log.
#[derive(Debug, Clone, Copy)]
struct RecordPlace {
    chunk: u64,
    chunk_start: u64,
    /// Offset of the event before it in the chunk; 0 for the chunk's first one.
    last_event: u64,
}

impl FollowedRecords {
    /// No records yet, of the slot with this number.
    pub fn new(slot: u64) -> FollowedRecords {
        FollowedRecords {
            slot,
            changes: IndexChanges::default(),
            heads: HashMap::new(),
            last: None,
        }
    }

    /// Number of the slot.
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// Returns the error for contents of the slot that cannot be at this offset of a chunk.
    pub fn refusal(&self, chunk: u64, offset: u64, reason: &str) -> Error {
        Error::invalid(format!(
            "slot {} does not fit the event log of this node: chunk {chunk}, byte {offset}: \
             {reason}",
            self.slot
        ))
    }
}

impl Appender {
    /// Appends records of a slot to the current chunk, which must have this id and end at `from`.
    /// Nothing is durable or visible yet.
    ///
    /// # Errors
    /// `Invalid` if the records do not continue the log, or are no valid ones. The caller then
    /// opens the store again, which cuts what was written.
    pub fn follow_records(
        &mut self,
        parts: &StoreComponents,
        (chunk, from): (u64, u64),
        records: &[u8],
        followed: &mut FollowedRecords,
    ) -> Result<()> {
        let start = self.chunk_writer.append_start();
        let Some(start) = start.filter(|start| start.location.chunk == chunk) else {
            return Err(followed.refusal(chunk, from, "this chunk is not the current one"));
        };
        let end = start.location.offset - RECORD_GAP_BYTES;
        if end != from {
            let reason = format!("the records of this chunk end at byte {end}");
            return Err(followed.refusal(chunk, from, &reason));
        }
        let (chunk_start, mut last_event) = (start.chunk_start, start.last_event);
        let (mut rest, mut offset) = (records, from);
        let binding = RecordBinding { log_id: chunk, salt: 0 };
        while !rest.is_empty() {
            let bytes = stated_bytes(rest).and_then(|bytes| usize::try_from(bytes).ok());
            let Some(record) = record_at(binding, offset, rest) else {
                return Err(followed.refusal(chunk, offset, "there is no valid record"));
            };
            let place = RecordPlace { chunk, chunk_start, last_event };
            last_event = self.follow_record(parts, &record, place, followed)?;
            // The record was decoded with this length.
            let bytes = bytes.unwrap_or(rest.len());
            rest = rest.get(bytes..).unwrap_or_default();
            offset += bytes as u64;
        }
        let end = self.chunk_writer.append_encoded(records, last_event)?;
        followed.last = Some((chunk_start + last_event, end));
        Ok(())
    }

    /// Adds the events of a record. Returns the offset of its last event.
    fn follow_record(
        &mut self,
        parts: &StoreComponents,
        record: &Record<'_>,
        place: RecordPlace,
        followed: &mut FollowedRecords,
    ) -> Result<u64> {
        let RecordPlace { chunk, chunk_start, mut last_event } = place;
        let first = record.offset + RECORD_GAP_BYTES;
        if record.payload.is_empty() || record.sequence != chunk_start + first {
            return Err(followed.refusal(chunk, record.offset, "the record is not of this place"));
        }
        self.recent_ids.begin_append(chunk_start + first);
        let end = first + record.payload.len() as u64;
        for frame in Frames::new(record.payload, FrameLocation { chunk, offset: first }) {
            let frame =
                frame.map_err(|offset| followed.refusal(chunk, offset, "there is no event"))?;
            let (meta, offset) = (frame.meta, frame.meta.location.offset);
            let back = if last_event == 0 { 0 } else { offset - last_event };
            let is_last = offset + frame.bytes as u64 >= end;
            let is_here = meta.position == chunk_start + offset
                && u64::from(meta.back) == back
                && meta.ends_append == is_last
                && !frame.is_stub;
            if !is_here {
                return Err(followed.refusal(chunk, offset, "the event is not of this place"));
            }
            self.follow_event(parts, &frame, followed)?;
            last_event = offset;
        }
        Ok(last_event)
    }

    fn follow_event(
        &mut self,
        parts: &StoreComponents,
        frame: &Frame<'_>,
        followed: &mut FollowedRecords,
    ) -> Result<()> {
        let (stream, meta) = (frame.stream, frame.meta);
        let hash = parts.existence.hash(stream);
        let head = match followed.heads.get(stream) {
            Some(head) => Some(*head),
            None => parts.head_with_hash(stream, hash)?,
        };
        let continues = head.is_none_or(|head| {
            let is_next = meta.revision == TOMBSTONE_REVISION || meta.revision > head.last_revision;
            is_next && !head.is_tombstoned
        });
        if !continues {
            let reason = format!("revision {} does not continue its stream", meta.revision);
            return Err(followed.refusal(meta.location.chunk, meta.location.offset, &reason));
        }
        let head = append_plan::follow_event(&mut followed.changes, head, frame, hash);
        followed.heads.insert(stream.to_string(), head);
        self.recent_ids.insert(hash, frame.event.id, (meta.position, frame.bytes as u64));
        if let Some(deleted) = append_plan::deleted_stream(frame) {
            self.recent_ids.insert_deletion(parts.existence.hash(deleted), meta.position);
        }
        self.note_created(parts, meta.created);
        Ok(())
    }

    /// Notes the time that the next event gets at least.
    pub fn note_created(&mut self, parts: &StoreComponents, created: u64) {
        self.last_created = created;
        parts.clock().note_created(created);
    }
}
