//! [`StreamReader`]: the events of one stream by revision.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::append::expected_version_check::StreamSnapshot;
use crate::event_log::LogCursor;
use crate::index::stream_head::StreamHead;
use crate::primitives::store_clock::TICKS_PER_SECOND;
use crate::read::created_search::ExpirySearch;
use crate::read::read_item::ReadItem;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::{Direction, RecordedEvent, Revision};
use crate::types::stream_metadata::RetentionRules;
use crate::types::stream_names;
use crate::types::stream_state::StreamState;

/// Number of index entries that are fetched at a time; the first page has fewer.
const PAGE_ENTRIES: usize = 256;
const FIRST_PAGE_ENTRIES: usize = 16;
/// Returns the snapshot of a stream for readers.
pub fn stream_snapshot(shared: &StoreInner, stream: &str) -> Result<StreamSnapshot> {
    snapshot_of(shared, stream, shared.head(stream)?)
}

/// Returns the snapshot of a stream with this head. The metadata stream of a tombstoned stream
/// counts as tombstoned.
fn snapshot_of(
    shared: &StoreInner,
    stream: &str,
    head: Option<StreamHead>,
) -> Result<StreamSnapshot> {
    let head = tombstone_of_subject(shared, stream)?.or(head);
    Ok(StreamSnapshot { head, retention: stream_retention(shared, stream, head)?, depends_on: 0 })
}

/// Returns the head of the tombstoned stream whose metadata this stream holds; `None` for any other
/// stream.
pub fn tombstone_of_subject(shared: &StoreInner, stream: &str) -> Result<Option<StreamHead>> {
    let Some(subject) = stream_names::metadata_subject(stream) else { return Ok(None) };
    Ok(shared.head(subject)?.filter(|head| head.is_tombstoned))
}

/// Returns the retention rules in the metadata of a stream with this head; `None` if it never had
/// metadata.
pub fn stream_retention(
    shared: &StoreInner,
    stream: &str,
    head: Option<StreamHead>,
) -> Result<Option<RetentionRules>> {
    if stream_names::metadata_subject(stream).is_some() {
        return Ok(Some(RetentionRules::METADATA_STREAM));
    }
    let metadata = shared.head(&stream_names::metadata_stream(stream))?;
    Ok(metadata.and_then(|metadata| metadata.retention_of(head)))
}

/// Returns the time before which appended events are expired.
pub fn retention_start(shared: &StoreInner, settings: Option<RetentionRules>) -> u64 {
    let Some(age) = settings.and_then(|settings| settings.max_age_seconds) else { return 0 };
    let now = shared.clock().now();
    now.saturating_sub(age.saturating_mul(TICKS_PER_SECOND))
}

/// Lists names and states of streams.
pub fn list_streams(
    shared: &StoreInner,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, StreamState)>> {
    let mut found = Vec::new();
    for (name, head) in shared.index.stream_names(prefix, after, limit)? {
        let known = snapshot_of(shared, &name, Some(head))?;
        found.push((name, StreamState::from_snapshot(&known)));
    }
    Ok(found)
}

/// Next item of a read of a stream or of another source.
pub type StreamItem = ReadItem<RecordedEvent>;

/// The events of one stream, in order. Returned by [`Store::read`](crate::Store::read).
///
/// The reader sees the stream in its state when the read began. After an error, the reader ends.
#[derive(Debug)]
pub struct StreamReader {
    stream: String,
    state: Option<StreamState>,
    stream_cursor: Option<StreamCursor>,
    /// Number of entries that were read before the reader ended.
    examined: u64,
    failed: Option<Error>,
}

#[derive(Debug)]
struct StreamCursor {
    shared: Arc<StoreInner>,
    cursor: LogCursor,
    head: StreamHead,
    direction: Direction,
    /// First and last of the remaining revisions, both inclusive; no revisions remain if the first
    /// is higher.
    remaining: (u64, u64),
    page: VecDeque<(u64, u64)>,
    page_size: usize,
    /// Events that were appended before this time are expired.
    retained_since: u64,
    /// Number of entries that were read.
    examined: u64,
}

impl StreamReader {
    pub(crate) fn new(
        shared: &Arc<StoreInner>,
        stream: &str,
        from: Revision,
        direction: Direction,
    ) -> StreamReader {
        let known = shared.check_open().and_then(|()| stream_snapshot(shared, stream));
        StreamReader::with_snapshot(shared, stream, known, from, direction)
    }

    /// Creates a reader of the newest metadata of a stream, which may be tombstoned.
    pub(crate) fn newest_metadata(shared: &Arc<StoreInner>, stream: &str) -> StreamReader {
        let name = stream_names::metadata_stream(stream);
        let head = shared.check_open().and_then(|()| Ok(shared.head(&name)?));
        let retention = Some(RetentionRules::METADATA_STREAM);
        let known = head.map(|head| StreamSnapshot { head, retention, depends_on: 0 });
        StreamReader::with_snapshot(shared, &name, known, Revision::END, Direction::Backwards)
    }

    fn with_snapshot(
        shared: &Arc<StoreInner>,
        stream: &str,
        known: Result<StreamSnapshot>,
        from: Revision,
        direction: Direction,
    ) -> StreamReader {
        let stream = stream.to_string();
        let mut reader =
            StreamReader { stream, state: None, stream_cursor: None, examined: 0, failed: None };
        let begun = known.and_then(|known| reader.begin(shared, &known, from, direction));
        reader.failed = shared.damage.record(begun).err();
        reader
    }

    fn begin(
        &mut self,
        shared: &Arc<StoreInner>,
        known: &StreamSnapshot,
        from: Revision,
        direction: Direction,
    ) -> Result<()> {
        let state = StreamState::from_snapshot(known);
        self.state = Some(state);
        known.check_not_tombstoned(&self.stream)?;
        let (StreamState::Live { first, last }, Some(head)) = (state, known.head) else {
            return Ok(());
        };
        let left = match direction {
            Direction::Forwards => (first.max(from.0), last),
            Direction::Backwards => (first, last.min(from.0)),
        };
        let oldest = retention_start(shared, known.retention);
        self.stream_cursor = Some(StreamCursor {
            shared: Arc::clone(shared),
            cursor: shared.log.cursor(),
            head,
            direction,
            remaining: left,
            page: VecDeque::new(),
            page_size: FIRST_PAGE_ENTRIES,
            retained_since: oldest,
            examined: 0,
        });
        Ok(())
    }

    /// Creates a reader of only the event with this revision, or of no event if it cannot be read.
    pub(crate) fn single(shared: &Arc<StoreInner>, stream: &str, revision: u64) -> StreamReader {
        let from = Revision(revision);
        let mut reader = StreamReader::new(shared, stream, from, Direction::Forwards);
        if let Some(walk) = &mut reader.stream_cursor {
            walk.remaining.1 = walk.remaining.1.min(revision);
        }
        reader
    }

    /// Returns the next event, but skips at most `limit` scavenged events. With this limit, a
    /// server can serve other clients in between. A binary search skips expired events.
    pub fn next_within(&mut self, limit: usize) -> Result<StreamItem> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(walk) = self.stream_cursor.as_mut() else { return Ok(StreamItem::End) };
        let next = walk.next(&self.stream, limit);
        let next = walk.shared.damage.record(next);
        self.examined = walk.examined;
        if !matches!(next, Ok(StreamItem::Event(_) | StreamItem::Skipped)) {
            self.stream_cursor = None;
        }
        next
    }

    /// Number of events that were examined so far, probes of a search included.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    /// Revision before which a forward read has examined every event; `None` at the end.
    pub(crate) fn next_revision(&self) -> Option<u64> {
        self.stream_cursor.as_ref().map(|walk| walk.remaining.0)
    }

    /// Whether the read may have to search for events that have not expired.
    pub fn may_search(&self) -> bool {
        self.stream_cursor
            .as_ref()
            .is_some_and(|walk| walk.retained_since > 0 && walk.direction == Direction::Forwards)
    }

    /// State of the stream when the read began; `None` if the lookup failed. After a failed lookup,
    /// the first item is the error.
    pub fn state(&self) -> Option<StreamState> {
        self.state
    }
}

impl Iterator for StreamReader {
    type Item = Result<RecordedEvent>;

    fn next(&mut self) -> Option<Result<RecordedEvent>> {
        ReadItem::next_event(|limit| self.next_within(limit))
    }
}

impl StreamCursor {
    fn next(&mut self, stream: &str, limit: usize) -> Result<StreamItem> {
        self.shared.check_process()?;
        for _ in 0..limit.max(1) {
            let Some((revision, position)) = self.next_entry()? else { return Ok(StreamItem::End) };
            self.examined += 1;
            // A scavenged event was hidden before.
            let frame = self.cursor.find_event(position)?.filter(|frame| !frame.is_stub);
            let Some(frame) = frame else { continue };
            if frame.stream != stream || frame.meta.revision != revision {
                let reason = format!(
                    "revision {revision} of stream '{}' should be at position {position}, but \
                     another event is there",
                    stream.escape_debug()
                );
                let folder = self.shared.folder.join("index");
                return Err(umbel::Error::corruption(&folder, 0, reason).into());
            }
            if self.shared.log.ordered_time(&frame.meta) >= self.retained_since {
                return Ok(StreamItem::Event(frame.to_recorded()));
            }
            self.skip_expired()?;
        }
        Ok(StreamItem::Skipped)
    }

    /// Skips the expired events after an expired one in reading order.
    fn skip_expired(&mut self) -> Result<()> {
        self.page.clear();
        let (index, id) = (&self.shared.index, self.head.id);
        // The head has the position of the last event.
        let until = self.remaining.1.min(self.head.last_revision.saturating_sub(1));
        let examined = &mut self.examined;
        let entry_at = |from| {
            *examined += 1;
            Ok(index.positions(id, (from, until), 1, false)?.first().copied())
        };
        let search = ExpirySearch { since: self.retained_since, until };
        self.remaining =
            search.remaining(&mut self.cursor, self.direction, self.remaining, entry_at)?;
        Ok(())
    }

    fn next_entry(&mut self) -> Result<Option<(u64, u64)>> {
        let (first, last) = self.remaining;
        if first > last {
            return Ok(None);
        }
        let is_last = |revision: u64| revision == self.head.last_revision;
        let wanted = match self.direction {
            Direction::Forwards => first,
            Direction::Backwards => last,
        };
        if is_last(wanted) {
            self.consume(wanted);
            return Ok(Some((wanted, self.head.last_position)));
        }
        if self.page.is_empty() {
            let until = last.min(self.head.last_revision - 1);
            let backwards = self.direction == Direction::Backwards;
            let range = (first, until);
            let page =
                self.shared.index.positions(self.head.id, range, self.page_size, backwards)?;
            self.page = page.into();
            self.page_size = PAGE_ENTRIES;
        }
        let Some((revision, position)) = self.page.pop_front() else {
            // No events remain: scavenged events have no entries.
            return Ok(match self.direction {
                Direction::Forwards if last == self.head.last_revision => {
                    self.remaining = (last, last);
                    self.consume(last);
                    Some((last, self.head.last_position))
                }
                _ => None,
            });
        };
        self.consume(revision);
        Ok(Some((revision, position)))
    }

    /// Removes a revision, and the revisions before it in reading order, from the remaining
    /// revisions.
    fn consume(&mut self, revision: u64) {
        match (self.direction, revision.checked_sub(1)) {
            (Direction::Forwards, _) => self.remaining.0 = revision + 1,
            (Direction::Backwards, Some(before)) => self.remaining.1 = before,
            (Direction::Backwards, None) => self.remaining = (1, 0),
        }
    }
}
