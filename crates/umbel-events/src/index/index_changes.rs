//! [`IndexChanges`]: index changes of appends, in order, in a few reused buffers.

use std::ops::Range;

use crate::index::stream_head::StreamHead;
use crate::index::unflushed_views::IndexedEvent;

/// Buffers that are larger than this are freed when the changes are cleared.
const RETAINED_BYTES_MAX: usize = 1 << 20;

/// State of one stream after an append.
#[derive(Debug, Clone, Copy)]
pub struct StreamChange<'a> {
    /// Name of the stream.
    pub stream: &'a str,
    /// Hash of the stream's name.
    pub hash: u64,
    /// Head of the stream after the append.
    pub head: StreamHead,
    /// Revisions and positions of events that are not in the index yet, and are not the stream's
    /// last.
    pub entries: &'a [(u64, u64)],
    /// Whether the stream had no event before the append.
    pub is_new: bool,
    text: &'a str,
    events: &'a [EventSpan],
}

impl<'a> StreamChange<'a> {
    /// Number of events that change the stream.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Returns the events that change the stream, in order, as entries of views.
    pub fn events(&self) -> impl Iterator<Item = IndexedEvent<'a>> + use<'a> {
        let text = self.text;
        self.events.iter().map(move |placed| IndexedEvent {
            position: placed.position,
            revision: placed.revision,
            kind: &text[placed.kind.clone()],
        })
    }
}

/// Changes, stream by stream.
#[derive(Debug, Default)]
pub struct IndexChanges {
    /// Names and types.
    text: String,
    streams: Vec<ChangeSpan>,
    entries: Vec<(u64, u64)>,
    events: Vec<EventSpan>,
}

#[derive(Debug)]
struct ChangeSpan {
    stream: Range<usize>,
    hash: u64,
    head: StreamHead,
    is_new: bool,
    entries: Range<usize>,
    events: Range<usize>,
}

/// An event with its type.
#[derive(Debug)]
struct EventSpan {
    position: u64,
    revision: u64,
    kind: Range<usize>,
}

/// Lengths of the buffers at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    text: usize,
    streams: usize,
    entries: usize,
    events: usize,
}

/// Builds the change of a stream.
#[derive(Debug)]
pub struct ChangeBuilder<'a> {
    changes: &'a mut IndexChanges,
    stream: Range<usize>,
    hash: u64,
    entries: usize,
    events: usize,
}

impl IndexChanges {
    /// Begins the change of a stream, which takes effect with [`ChangeBuilder::finish`].
    pub fn begin(&mut self, stream: &str, hash: u64) -> ChangeBuilder<'_> {
        let start = self.text.len();
        self.text.push_str(stream);
        let (entries, placed) = (self.entries.len(), self.events.len());
        ChangeBuilder {
            stream: start..self.text.len(),
            hash,
            entries,
            events: placed,
            changes: self,
        }
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns all changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = StreamChange<'_>> + Clone {
        self.changes_from(0)
    }

    /// Returns the stream of a change.
    #[inline]
    pub fn stream(&self, index: usize) -> Option<&str> {
        Some(&self.text[self.streams.get(index)?.stream.clone()])
    }

    /// Returns a change.
    pub fn get(&self, index: usize) -> Option<StreamChange<'_>> {
        self.streams.get(index).map(|kept| self.change(kept))
    }

    /// Returns the changes from this index on.
    pub fn changes_from(&self, first: usize) -> impl Iterator<Item = StreamChange<'_>> + Clone {
        self.streams[first..].iter().map(|kept| self.change(kept))
    }

    // Inlined: a return through memory that was just written would have to wait for it.
    #[inline(always)]
    fn change(&self, kept: &ChangeSpan) -> StreamChange<'_> {
        StreamChange {
            stream: &self.text[kept.stream.clone()],
            hash: kept.hash,
            head: kept.head,
            entries: &self.entries[kept.entries.clone()],
            is_new: kept.is_new,
            text: &self.text,
            events: &self.events[kept.events.clone()],
        }
    }

    /// Returns the present lengths of the buffers.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            text: self.text.len(),
            streams: self.streams.len(),
            entries: self.entries.len(),
            events: self.events.len(),
        }
    }

    /// Removes the changes after a savepoint.
    pub fn roll_back(&mut self, mark: Savepoint) {
        self.text.truncate(mark.text);
        self.streams.truncate(mark.streams);
        self.entries.truncate(mark.entries);
        self.events.truncate(mark.events);
    }

    /// Removes all changes, but keeps the buffers, unless they are large.
    pub fn clear(&mut self) {
        let bytes = self.text.capacity()
            + self.streams.capacity() * size_of::<ChangeSpan>()
            + self.entries.capacity() * size_of::<(u64, u64)>()
            + self.events.capacity() * size_of::<EventSpan>();
        if bytes > RETAINED_BYTES_MAX {
            *self = IndexChanges::default();
        }
        self.roll_back(Savepoint { text: 0, streams: 0, entries: 0, events: 0 });
    }
}

impl ChangeBuilder<'_> {
    /// Adds an event that is not in the index yet and is not the stream's last.
    pub fn add_entry(&mut self, revision: u64, position: u64) {
        self.changes.entries.push((revision, position));
    }

    /// Adds an event that changes the stream, as an entry of views.
    pub fn add_event(&mut self, placed: &IndexedEvent<'_>) {
        let IndexChanges { text, events: all, .. } = &mut *self.changes;
        let IndexedEvent { position, revision, kind } = *placed;
        // Most events have the type of the event before.
        let same = all.last().filter(|last| text[last.kind.clone()] == *kind);
        let kind = match same {
            Some(last) => last.kind.clone(),
            None => {
                let start = text.len();
                text.push_str(kind);
                start..text.len()
            }
        };
        all.push(EventSpan { position, revision, kind });
    }

    /// Completes the change with the stream's new head.
    pub fn finish(self, head: StreamHead, is_new: bool) {
        let ChangeBuilder { changes, stream, hash, entries, events: placed } = self;
        let entries = entries..changes.entries.len();
        let placed = placed..changes.events.len();
        changes.streams.push(ChangeSpan { stream, hash, head, is_new, entries, events: placed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(id: u64) -> StreamHead {
        StreamHead {
            id,
            last_revision: 0,
            last_position: id,
            is_tombstoned: false,
            retention: None,
        }
    }

    fn add(changes: &mut IndexChanges, stream: &str, kinds: &[&str]) {
        let mut growing = changes.begin(stream, stream.len() as u64);
        for (revision, kind) in (0..).zip(kinds) {
            growing.add_entry(revision, 96 + revision);
            growing.add_event(&IndexedEvent { position: 96 + revision, revision, kind });
        }
        growing.finish(head(7), kinds.len() > 1);
    }

    fn contents(changes: &IndexChanges) -> Vec<(String, usize, Vec<String>)> {
        let kinds =
            |change: &StreamChange<'_>| change.events().map(|p| p.kind.to_string()).collect();
        let describe = |change: StreamChange<'_>| {
            (change.stream.to_string(), change.entries.len(), kinds(&change))
        };
        changes.iter().map(describe).collect()
    }

    #[test]
    fn changes_keep_their_order_after_a_rollback() {
        let mut changes = IndexChanges::default();
        add(&mut changes, "cart-1", &["A", "A", "B"]);
        let mark = changes.savepoint();
        add(&mut changes, "cart-2", &["B"]);
        assert_eq!(changes.changes_from(1).map(|change| change.hash).collect::<Vec<_>>(), [6]);
        assert_eq!((changes.stream(1), changes.stream(2)), (Some("cart-2"), None));
        let both = contents(&changes);
        assert_eq!(both[0], ("cart-1".into(), 3, vec!["A".into(), "A".into(), "B".into()]));
        assert_eq!(both[1], ("cart-2".into(), 1, vec!["B".into()]));
        changes.roll_back(mark);
        assert_eq!(contents(&changes), both[..1]);
        add(&mut changes, "", &["", "C"]);
        assert_eq!(contents(&changes)[1], (String::new(), 2, vec![String::new(), "C".into()]));
        changes.clear();
        assert!(changes.is_empty() && changes.iter().next().is_none());
    }

    #[test]
    fn large_buffer_frees_its_memory() {
        let mut changes = IndexChanges::default();
        add(&mut changes, &"x".repeat(2 * RETAINED_BYTES_MAX), &["A"]);
        changes.clear();
        assert_eq!(changes.text.capacity(), 0);
        add(&mut changes, "few", &["A"]);
        changes.clear();
        assert!(changes.text.capacity() > 0 && changes.is_empty());
    }
}
