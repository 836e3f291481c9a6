//! Model of streams, as `docs/reference/event-store.md` promises.

use std::collections::BTreeMap;

/// An event's identifier.
pub type CallEventId = u128;

/// Expected revision of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamExpectation {
    /// Any state.
    Any,
    /// The stream is missing or deleted.
    NoStream,
    /// The stream exists.
    Exists,
    /// The stream's last event has this revision.
    At(u64),
}

/// Expected effect of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendFate {
    /// The events are written, from this revision on.
    Written(u64),
    /// The append is an idempotent retry of the events from this revision on.
    There(u64),
    /// The append has no events and its expectation holds; the value is the stream's last revision.
    Nothing(Option<u64>),
    /// The stream is not at the expected revision; the value is its actual revision.
    Wrong(Option<u64>),
    /// The stream is expected to exist but was deleted; the value is its last revision.
    Deleted(Option<u64>),
    /// The stream was tombstoned.
    Ended,
}

/// An appended event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// Identifier of the event.
    pub id: CallEventId,
    /// Position of the event, once a client received it.
    pub position: Option<u64>,
}

/// A stream.
#[derive(Debug, Clone, Default)]
pub struct StreamState {
    /// Every appended event, including hidden ones, in order of the revisions.
    pub events: Vec<StreamEvent>,
    /// Index of the first visible event.
    pub visible_from: usize,
    /// Whether the stream was deleted and not created again.
    pub is_deleted: bool,
    /// Whether the stream was tombstoned.
    pub is_tombstoned: bool,
}

impl StreamState {
    /// Returns the stream's last revision.
    pub fn last(&self) -> Option<u64> {
        (self.events.len() as u64).checked_sub(1)
    }

    /// Whether the stream meets the expectation.
    pub fn is_at(&self, wants: StreamExpectation) -> bool {
        match wants {
            StreamExpectation::Any => true,
            StreamExpectation::NoStream => self.events.is_empty() || self.is_deleted,
            StreamExpectation::Exists => !self.events.is_empty() && !self.is_deleted,
            StreamExpectation::At(revision) => self.last() == Some(revision),
        }
    }

    /// Returns the expected effect of an append of these events.
    pub fn fate(&self, wants: StreamExpectation, ids: &[CallEventId]) -> AppendFate {
        if self.is_tombstoned {
            return AppendFate::Ended;
        }
        if self.is_deleted && wants == StreamExpectation::Exists {
            return AppendFate::Deleted(self.last());
        }
        let (is_at, wrong) = (self.is_at(wants), AppendFate::Wrong(self.last()));
        let Some(first) = ids.first() else {
            return if is_at { AppendFate::Nothing(self.last()) } else { wrong };
        };
        let is_loose = matches!(wants, StreamExpectation::Any | StreamExpectation::Exists) && is_at;
        // Events before a deletion are not recognized.
        let first_place = if self.is_deleted { self.events.len() } else { self.visible_from };
        let live = &self.events[first_place..];
        if is_loose && let Some(place) = live.iter().rposition(|event| event.id == *first) {
            let place = first_place + place;
            return if self.has_at(place, ids) { AppendFate::There(place as u64) } else { wrong };
        }
        if is_at {
            return AppendFate::Written(self.events.len() as u64);
        }
        let places = match wants {
            // The first revision of the stream, and the first one after its deletion.
            StreamExpectation::NoStream => vec![0, self.visible_from],
            StreamExpectation::At(revision) => {
                vec![usize::try_from(revision).map_or(usize::MAX, |at| at + 1)]
            }
            StreamExpectation::Any | StreamExpectation::Exists => Vec::new(),
        };
        let place = places.into_iter().find(|place| self.has_at(*place, ids));
        place.map_or(wrong, |place| AppendFate::There(place as u64))
    }

    /// Whether the stream has these events from this index on.
    fn has_at(&self, place: usize, ids: &[CallEventId]) -> bool {
        let there = self.events.get(place..).unwrap_or_default().iter().map(|event| event.id);
        there.take(ids.len()).eq(ids.iter().copied())
    }

    /// Whether an event with one of these identifiers was ever appended.
    pub fn has_any_id(&self, ids: &[CallEventId]) -> bool {
        self.events.iter().any(|event| ids.contains(&event.id))
    }

    /// Appends events; the last event is at this position.
    pub fn append(&mut self, ids: &[CallEventId], position: u64) {
        if self.is_deleted {
            self.visible_from = self.events.len();
            self.is_deleted = false;
        }
        self.events.extend(ids.iter().map(|id| StreamEvent { id: *id, position: None }));
        if let Some(last) = self.events.last_mut() {
            last.position = Some(position);
        }
    }

    /// Returns the visible revisions and events.
    pub fn visible_events(&self) -> Vec<(u64, CallEventId)> {
        if self.is_deleted || self.is_tombstoned {
            return Vec::new();
        }
        let shown = self.events.iter().enumerate().skip(self.visible_from);
        shown.map(|(at, event)| (at as u64, event.id)).collect()
    }
}

/// All streams.
#[derive(Debug, Clone, Default)]
pub struct StreamStates {
    /// Streams by their names.
    pub by_name: BTreeMap<&'static str, StreamState>,
    /// All appended events in order.
    pub all: Vec<(&'static str, u64, CallEventId)>,
    /// Position of the last acknowledged event.
    pub top: u64,
}

impl StreamStates {
    /// Returns a stream.
    pub fn of(&mut self, name: &'static str) -> &mut StreamState {
        self.by_name.entry(name).or_default()
    }

    /// Appends events to a stream; the last event is at this position.
    pub fn append(&mut self, name: &'static str, ids: &[CallEventId], position: u64) {
        let first = self.of(name).events.len() as u64;
        self.of(name).append(ids, position);
        self.all.extend((first..).zip(ids).map(|(revision, id)| (name, revision, *id)));
        self.top = self.top.max(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(ids: &[CallEventId]) -> StreamState {
        let mut stream = StreamState::default();
        stream.append(ids, 1);
        stream
    }

    #[test]
    fn full_retry_is_idempotent_and_partial_retry_conflicts() {
        let stream = stream(&[1, 2, 3]);
        assert_eq!(stream.fate(StreamExpectation::Any, &[2, 3]), AppendFate::There(1));
        assert_eq!(stream.fate(StreamExpectation::Any, &[2, 9]), AppendFate::Wrong(Some(2)));
        assert_eq!(stream.fate(StreamExpectation::Any, &[9, 2]), AppendFate::Written(3));
        assert_eq!(stream.fate(StreamExpectation::NoStream, &[1, 2]), AppendFate::There(0));
        assert_eq!(stream.fate(StreamExpectation::At(0), &[2, 3]), AppendFate::There(1));
        assert_eq!(stream.fate(StreamExpectation::At(0), &[3]), AppendFate::Wrong(Some(2)));
        assert_eq!(stream.fate(StreamExpectation::At(2), &[4]), AppendFate::Written(3));
        assert_eq!(stream.fate(StreamExpectation::At(7), &[]), AppendFate::Wrong(Some(2)));
    }

    #[test]
    fn recreated_stream_continues_revisions_and_shows_new_events() {
        let mut stream = stream(&[1, 2]);
        stream.is_deleted = true;
        assert_eq!(stream.visible_events(), []);
        assert_eq!(stream.fate(StreamExpectation::Exists, &[3]), AppendFate::Deleted(Some(1)));
        assert_eq!(stream.fate(StreamExpectation::Any, &[2]), AppendFate::Written(2));
        assert_eq!(stream.fate(StreamExpectation::NoStream, &[3]), AppendFate::Written(2));
        stream.append(&[3], 5);
        assert_eq!(stream.visible_events(), [(2, 3)]);
        assert_eq!(stream.fate(StreamExpectation::NoStream, &[3]), AppendFate::There(2));
        assert_eq!(stream.fate(StreamExpectation::Any, &[3]), AppendFate::There(2));
        assert_eq!(stream.fate(StreamExpectation::Any, &[2]), AppendFate::Written(3));
        stream.is_tombstoned = true;
        assert_eq!(stream.fate(StreamExpectation::Any, &[4]), AppendFate::Ended);
    }
}
