//! Decision about an append by the stream's state, the expected version and earlier writes of the
//! events. `docs/reference/event-store.md` has the table of all decisions; a test covers each cell
//! of the table. [`ConflictCollector`] collects the conflicts of one request.

use umbel_base::fail_point;

use crate::index::stream_head::StreamHead;
use crate::limits::TOMBSTONE_REVISION;
use crate::types::error::{Error, Result};
use crate::types::event::{EventId, NewEvent};
use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_metadata::RetentionRules;
use crate::types::stream_state::StreamState;
use crate::types::version_conflict::{PresentEvents, RequestItem, VersionConflict};

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamSnapshot {
    /// The stream's head; `None` if the stream never had an event.
    pub head: Option<StreamHead>,
    /// Retention rules of the stream's metadata; `None` if the stream never had metadata.
    pub retention: Option<RetentionRules>,
    /// Position of the last event that determines this state; 0 where no caller needs the position.
    pub depends_on: u64,
}

impl StreamSnapshot {
    /// Whether the stream is deleted, so that the next append creates it again.
    pub fn is_deleted(&self) -> bool {
        self.retention.is_some_and(|settings| settings.is_deleted())
    }

    /// Revision of the last event.
    pub fn last_revision(&self) -> Option<u64> {
        self.head.filter(|head| !has_no_events(head)).map(|head| head.last_revision)
    }

    /// Returns an error where the stream is tombstoned.
    pub fn check_not_tombstoned(&self, stream: &str) -> Result<()> {
        if self.head.is_some_and(|head| head.is_tombstoned) {
            return Err(Error::StreamDeleted { stream: stream.to_string() });
        }
        Ok(())
    }

    /// Whether the stream meets the expected version.
    pub fn matches(&self, expected: ExpectedVersion) -> bool {
        match expected {
            ExpectedVersion::Any => true,
            ExpectedVersion::NoStream => self.last_revision().is_none() || self.is_deleted(),
            ExpectedVersion::Exists => {
                !self.is_deleted() && (self.last_revision().is_some() || self.retention.is_some())
            }
            ExpectedVersion::Exact(revision) => self.last_revision() == Some(revision),
            ExpectedVersion::Deleted => self.last_revision().is_some() && self.is_deleted(),
            ExpectedVersion::Tombstoned => self.head.is_some_and(|head| head.is_tombstoned),
        }
    }

    /// Whether the stream meets a check of a request that writes nothing to the stream. A
    /// tombstoned stream meets a check that expects no stream.
    pub fn matches_check(&self, expected: ExpectedVersion) -> bool {
        let is_tombstoned = self.head.is_some_and(|head| head.is_tombstoned);
        match expected {
            ExpectedVersion::Any | ExpectedVersion::NoStream if is_tombstoned => true,
            expected => {
                self.matches(expected)
                    && (is_tombstoned == (expected == ExpectedVersion::Tombstoned))
            }
        }
    }

    /// Returns the error for an expected version that is not met. A deleted stream that is expected
    /// to exist is reported as deleted.
    pub fn conflict_error(&self, stream: &str, expected: ExpectedVersion) -> Error {
        let stream = stream.to_string();
        let (current, present) = (self.last_revision(), None);
        if expected == ExpectedVersion::Exists && self.is_deleted() && current.is_some() {
            return Error::StreamDeleted { stream };
        }
        Error::WrongExpectedVersion { stream, expected, current, present }
    }

    /// Returns the error for an append of which some events are in the stream already.
    fn partial_retry_error(
        &self,
        stream: &str,
        expected: ExpectedVersion,
        present: PresentEvents,
    ) -> Error {
        let (stream, current) = (stream.to_string(), self.last_revision());
        Error::WrongExpectedVersion { stream, expected, current, present: Some(present) }
    }
}

impl StreamState {
    pub(crate) fn from_snapshot(known: &StreamSnapshot) -> StreamState {
        let Some(head) = known.head else { return StreamState::Missing };
        if head.is_tombstoned {
            return StreamState::Tombstoned;
        }
        let last = head.last_revision;
        debug_assert!(last < TOMBSTONE_REVISION, "only a tombstone has this revision");
        match known.retention {
            Some(settings) if settings.is_deleted() => StreamState::Deleted { last },
            settings => {
                let first = settings.unwrap_or_default().first_revision(last);
                StreamState::Live { first, last }
            }
        }
    }
}

/// Whether the head belongs to a stream that was tombstoned before it had any event.
fn has_no_events(head: &StreamHead) -> bool {
    head.is_tombstoned && head.id == head.last_position
}

/// Decision about an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Append, beginning with this revision.
    Append {
        /// Revision of the first new event.
        first: u64,
    },
    /// Write nothing: the events exist already.
    Retry {
        /// Revision of the first existing event.
        first: u64,
        /// Revision of the last existing event.
        last: u64,
        /// Position of the last existing event.
        position: u64,
    },
    /// Write nothing: there are no events to append, and the stream is as expected.
    NoEvents,
}

/// Reads the written events of a stream.
pub trait StreamHistory {
    /// Id and position of the stream's event with this revision; `None` where it does not exist.
    fn event(&mut self, revision: u64) -> Result<Option<(EventId, u64)>>;
    /// Revision of the stream's event with this id, if it is among the newest of the store and the
    /// stream was not deleted after it.
    fn recent_revision(&mut self, id: EventId) -> Result<Option<u64>>;
    /// Number of events from this revision on that are known to be the first ones of the append.
    fn written_events(&self, _first: u64) -> u64 {
        0
    }
}

/// Result of comparing new events with the written events from some revision on.
enum RetryMatch {
    /// All events exist; the value is the position of the last event.
    All(u64),
    /// The first new events exist, this many, but the next new event does not.
    Partial(u64),
    /// The first event does not exist.
    None,
}

fn compare(
    events: &[NewEvent<'_>],
    first: u64,
    written: &mut dyn StreamHistory,
) -> Result<RetryMatch> {
    fail_point!("events-forget-retries", |_| Ok(RetryMatch::None));
    let mut position = 0;
    // At least the last event is read, since its position is needed.
    let known = written.written_events(first).min(events.len().saturating_sub(1) as u64);
    for (revision, event) in (first + known..).zip(&events[known as usize..]) {
        match written.event(revision)? {
            Some((there, at)) if there == event.id => position = at,
            _ if revision == first => return Ok(RetryMatch::None),
            _ => return Ok(RetryMatch::Partial(revision - first)),
        }
    }
    Ok(RetryMatch::All(position))
}

/// Decides about an append of these events, of which only the ids are compared.
///
/// # Errors
/// `StreamDeleted`, `WrongExpectedVersion`, and errors of reads of the written events.
pub fn decide(
    stream: &str,
    known: &StreamSnapshot,
    expected: ExpectedVersion,
    events: &[NewEvent<'_>],
    written: &mut dyn StreamHistory,
) -> Result<Decision> {
    known.check_not_tombstoned(stream)?;
    let wrong = || known.conflict_error(stream, expected);
    let Some(first_event) = events.first() else {
        return if known.matches(expected) { Ok(Decision::NoEvents) } else { Err(wrong()) };
    };
    let append = Decision::Append { first: known.last_revision().map_or(0, |last| last + 1) };
    fail_point!("events-ignore-expected-version", |_| Ok(append));
    let already = |first: u64, position: u64| {
        let last = first + events.len() as u64 - 1;
        Decision::Retry { first, last, position }
    };
    let present = |first_revision: u64, count: u64| PresentEvents {
        first_revision,
        count,
        appended: events.len() as u64,
    };
    if matches!(expected, ExpectedVersion::Any | ExpectedVersion::Exists)
        && (expected == ExpectedVersion::Any || known.matches(expected))
        && let Some(first) = written.recent_revision(first_event.id)?
    {
        return match compare(events, first, written)? {
            RetryMatch::All(position) => Ok(already(first, position)),
            RetryMatch::Partial(count) => {
                Err(known.partial_retry_error(stream, expected, present(first, count)))
            }
            RetryMatch::None => Err(wrong()),
        };
    }
    if known.matches(expected) {
        return Ok(append);
    }
    let Some(last) = known.last_revision() else { return Err(wrong()) };
    // Revisions that the events would have if this were a retry.
    let truncated = known.retention.map(|settings| settings.truncate_before);
    let came_back = truncated.filter(|first| *first > 0);
    let places = match expected {
        ExpectedVersion::NoStream => [Some(0), came_back],
        ExpectedVersion::Deleted => [came_back, None],
        ExpectedVersion::Exact(revision) if revision < last => [Some(revision + 1), None],
        _ => [None, None],
    };
    let mut partial = None;
    for first in places.into_iter().flatten() {
        match compare(events, first, written)? {
            RetryMatch::All(position) => return Ok(already(first, position)),
            RetryMatch::Partial(count) => partial = partial.or(Some(present(first, count))),
            RetryMatch::None => {}
        }
    }
    Err(match partial {
        Some(present) => known.partial_retry_error(stream, expected, present),
        None => wrong(),
    })
}

/// Version conflicts of a request.
#[derive(Debug, Default)]
pub struct ConflictCollector(Vec<VersionConflict>);

impl ConflictCollector {
    /// Whether there is no conflict.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a conflict. `present` are events of the item that are in the stream already, where they
    /// are the cause.
    pub fn add(
        &mut self,
        item: RequestItem,
        stream: &str,
        expected: ExpectedVersion,
        known: &StreamSnapshot,
        present: Option<PresentEvents>,
    ) {
        let (stream, state) = (stream.to_string(), StreamState::from_snapshot(known));
        self.0.push(VersionConflict { item, stream, expected, state, present });
    }

    /// Returns the decision; for a version conflict, adds the conflict and returns `None`.
    pub fn collect<T>(
        &mut self,
        decided: Result<T>,
        item: RequestItem,
        expected: ExpectedVersion,
        known: &StreamSnapshot,
    ) -> Result<Option<T>> {
        let (stream, present) = match decided {
            Ok(decision) => return Ok(Some(decision)),
            Err(Error::WrongExpectedVersion { stream, present, .. }) => (stream, present),
            Err(Error::StreamDeleted { stream }) => (stream, None),
            Err(error) => return Err(error),
        };
        self.add(item, &stream, expected, known, present);
        Ok(None)
    }

    /// Returns an error if a conflict was added.
    pub fn finish(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::VersionConflicts(self.0)) }
    }
}
