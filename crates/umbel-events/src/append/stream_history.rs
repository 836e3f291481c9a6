//! [`Looking`]: what is written of a stream, for whoever decides about an append to it.

use crate::decide::Written;
use crate::error::Result;
use crate::event::EventId;
use crate::event_log::LogCursor;
use crate::head::Head;
use crate::id_window::IdWindow;
use crate::parts::Parts;
use crate::queued::Queue;

/// Looks at what is written of a stream, in the index or not yet.
pub struct Looking<'a> {
    /// The store.
    pub parts: &'a Parts,
    /// The stream.
    pub stream: &'a str,
    /// The hash of its name.
    pub hash: u64,
    /// Its head, with what is not in the index yet.
    pub head: Option<Head>,
    /// The ids of the newest events.
    pub window: &'a IdWindow,
    /// What is not in the index yet.
    pub queue: &'a Queue,
    /// Reads the log.
    pub cursor: &'a mut LogCursor,
}

impl Looking<'_> {
    fn position(&self, head: &Head, revision: u64) -> Result<Option<u64>> {
        if revision == head.last_revision && !head.is_tombstoned {
            return Ok(Some(head.last_position));
        }
        let changes = self.queue.groups().flat_map(|queued| queued.changes.iter());
        for change in changes.filter(|change| change.stream == self.stream) {
            // In order of revisions, and up to a hundred thousand of one append.
            let entries = change.entries;
            if let Ok(place) = entries.binary_search_by_key(&revision, |(queued, _)| *queued) {
                return Ok(Some(entries[place].1));
            }
        }
        Ok(self.parts.index.position(head.id, revision)?)
    }
}

impl Written for Looking<'_> {
    fn event(&mut self, revision: u64) -> Result<Option<(EventId, u64)>> {
        let Some(head) = self.head.filter(|head| revision <= head.last_revision) else {
            return Ok(None);
        };
        let Some(position) = self.position(&head, revision)? else { return Ok(None) };
        // One that was scavenged is there no longer, one of which a stub is left is.
        Ok(self.cursor.find(position)?.map(|frame| (frame.event.id, position)))
    }

    fn recent(&mut self, id: EventId) -> Result<Option<u64>> {
        let Some(position) = self.window.find(self.hash, id) else { return Ok(None) };
        let Some(frame) = self.cursor.find(position)? else { return Ok(None) };
        let is_it = frame.stream == self.stream && frame.event.id == id;
        Ok(is_it.then_some(frame.stamp.revision))
    }
}
