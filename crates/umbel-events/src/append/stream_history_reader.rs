//! [`StreamHistoryReader`]: written events of a stream, for the decision about an append to it.

use crate::append::expected_version_check::StreamHistory;
use crate::append::index_queue::IndexQueue;
use crate::append::pending_heads::PendingHeads;
use crate::append::position_window::PositionWindow;
use crate::append::recent_event_ids::RecentEventIds;
use crate::append::written_prefix::WrittenPrefix;
use crate::event_log::LogCursor;
use crate::index::stream_head::StreamHead;
use crate::store_components::StoreComponents;
use crate::types::error::Result;
use crate::types::event::EventId;
use crate::types::stream_names;

/// Reads written events of a stream, whether they are indexed or not.
pub struct StreamHistoryReader<'a> {
    /// Parts of the store.
    pub components: &'a StoreComponents,
    /// The stream.
    pub stream: &'a str,
    /// Hash of the stream's name.
    pub hash: u64,
    /// The stream's head, including changes that are not indexed yet.
    pub head: Option<StreamHead>,
    /// Ids of the newest events.
    pub recent_ids: &'a RecentEventIds,
    /// Changes that are not indexed yet.
    pub queue: &'a IndexQueue,
    /// Streams with such changes.
    pub pending_heads: &'a PendingHeads,
    /// Whether events are recognized although their stream was deleted after them.
    pub sees_deleted: bool,
    /// Cursor over the log.
    pub cursor: &'a mut LogCursor,
    /// Positions of events that were read from the index.
    pub window: PositionWindow,
    /// Events of the append that were found before.
    pub written: Option<WrittenPrefix>,
}

impl StreamHistoryReader<'_> {
    /// Whether the stream was deleted after the event at this position.
    fn is_deleted_after(&mut self, position: u64) -> Result<bool> {
        let deletion = self.recent_ids.find_deletion(self.hash);
        let Some(deletion) = deletion.filter(|deletion| *deletion > position) else {
            return Ok(false);
        };
        // A scavenge may have removed the event that deleted the stream.
        let Some(frame) = self.cursor.find_event(deletion)? else { return Ok(true) };
        Ok(stream_names::metadata_subject(frame.stream) == Some(self.stream))
    }

    /// Position that the head or a queued append has for this revision.
    fn unindexed_position(&self, head: &StreamHead, revision: u64) -> Option<u64> {
        if revision == head.last_revision && !head.is_tombstoned {
            return Some(head.last_position);
        }
        self.pending_heads.position(self.queue, self.hash, self.stream, revision)
    }

    /// Id and position of the event at this position; `None` if a scavenge removed it. An event
    /// with a stub exists.
    fn event_at(&mut self, position: u64) -> Result<Option<(EventId, u64)>> {
        Ok(self.cursor.find_event(position)?.map(|frame| (frame.event.id, position)))
    }

    /// Id and position of the event that the index has for this revision.
    fn indexed_event(
        &mut self,
        head: &StreamHead,
        revision: u64,
    ) -> Result<Option<(EventId, u64)>> {
        let index = &self.components.index;
        let range = (revision, head.last_revision);
        let Some(position) = self.window.position(index, head.id, range)? else { return Ok(None) };
        let found = self.event_at(position);
        if matches!(found, Ok(Some(_))) {
            return found;
        }
        // A scavenge may have deleted the entry since the window was read.
        match self.components.index.position(head.id, revision)? {
            None => Ok(None),
            Some(current) if current == position => found,
            Some(current) => self.event_at(current),
        }
    }
}

impl StreamHistory for StreamHistoryReader<'_> {
    fn event(&mut self, revision: u64) -> Result<Option<(EventId, u64)>> {
        let Some(head) = self.head.filter(|head| revision <= head.last_revision) else {
            return Ok(None);
        };
        match self.unindexed_position(&head, revision) {
            Some(position) => self.event_at(position),
            None => self.indexed_event(&head, revision),
        }
    }

    fn recent_revision(&mut self, id: EventId) -> Result<Option<u64>> {
        let Some(position) = self.recent_ids.find(self.hash, id) else { return Ok(None) };
        let Some(frame) = self.cursor.find_event(position)? else { return Ok(None) };
        let is_it = frame.stream == self.stream && frame.event.id == id;
        let revision = frame.meta.revision;
        let is_hidden = is_it && !self.sees_deleted && self.is_deleted_after(position)?;
        Ok((is_it && !is_hidden).then_some(revision))
    }

    fn written_events(&self, first: u64) -> u64 {
        self.written.map_or(0, |written| written.events_from(&self.components.log, first))
    }
}
