//! [`StreamHistoryReader`]: written events of a stream, for the decision about an append to it.

use crate::append::expected_version_check::StreamHistory;
use crate::append::index_queue::IndexQueue;
use crate::append::pending_heads::PendingHeads;
use crate::append::recent_event_ids::RecentEventIds;
use crate::event_log::LogCursor;
use crate::index::stream_head::StreamHead;
use crate::store_components::StoreComponents;
use crate::types::error::Result;
use crate::types::event::EventId;

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
    /// Cursor over the log.
    pub cursor: &'a mut LogCursor,
}

impl StreamHistoryReader<'_> {
    fn position(&self, head: &StreamHead, revision: u64) -> Result<Option<u64>> {
        if revision == head.last_revision && !head.is_tombstoned {
            return Ok(Some(head.last_position));
        }
        let queued = self.pending_heads.position(self.queue, self.hash, self.stream, revision);
        match queued {
            Some(position) => Ok(Some(position)),
            None => Ok(self.components.index.position(head.id, revision)?),
        }
    }
}

impl StreamHistory for StreamHistoryReader<'_> {
    fn event(&mut self, revision: u64) -> Result<Option<(EventId, u64)>> {
        let Some(head) = self.head.filter(|head| revision <= head.last_revision) else {
            return Ok(None);
        };
        let Some(position) = self.position(&head, revision)? else { return Ok(None) };
        // A scavenged event no longer exists; an event with a stub does.
        Ok(self.cursor.find_event(position)?.map(|frame| (frame.event.id, position)))
    }

    fn recent_revision(&mut self, id: EventId) -> Result<Option<u64>> {
        let Some(position) = self.recent_ids.find(self.hash, id) else { return Ok(None) };
        let Some(frame) = self.cursor.find_event(position)? else { return Ok(None) };
        let is_it = frame.stream == self.stream && frame.event.id == id;
        Ok(is_it.then_some(frame.meta.revision))
    }
}
