//! Streams as they have to be, written down from what `docs/event-store.md` promises.

use std::collections::BTreeMap;

/// An event's identifier.
pub type Id = u128;

/// What whoever appends wants his stream to be at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// Whatever it is.
    Any,
    /// Not there, or deleted.
    NoStream,
    /// There.
    Exists,
    /// Its last event has this revision.
    At(u64),
}

/// What becomes of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is written, from this revision on.
    Written(u64),
    /// It was there before, from this revision on.
    There(u64),
    /// It has no events, and the stream is as wanted: its last revision.
    Nothing(Option<u64>),
    /// The stream is at something else: its last revision.
    Wrong(Option<u64>),
    /// The stream was tombstoned.
    Ended,
}

/// An event as it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its identifier.
    pub id: Id,
    /// Where it is, once somebody was told.
    pub position: Option<u64>,
}

/// A stream.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// Every event that was ever appended, those that are hidden too: the place is the revision.
    pub events: Vec<Event>,
    /// The first one that is shown.
    pub shown_from: usize,
    /// Whether it was deleted and did not come back.
    pub is_deleted: bool,
    /// Whether it was deleted for good.
    pub is_ended: bool,
}

impl Stream {
    /// The revision of its last event.
    pub fn last(&self) -> Option<u64> {
        (self.events.len() as u64).checked_sub(1)
    }

    /// Whether it is so.
    pub fn is_at(&self, wants: Wants) -> bool {
        match wants {
            Wants::Any => true,
            Wants::NoStream => self.events.is_empty() || self.is_deleted,
            Wants::Exists => !self.events.is_empty() && !self.is_deleted,
            Wants::At(revision) => self.last() == Some(revision),
        }
    }

    /// What becomes of an append of these events.
    pub fn fate(&self, wants: Wants, ids: &[Id]) -> Fate {
        if self.is_ended {
            return Fate::Ended;
        }
        let (is_at, wrong) = (self.is_at(wants), Fate::Wrong(self.last()));
        let Some(first) = ids.first() else {
            return if is_at { Fate::Nothing(self.last()) } else { wrong };
        };
        let is_loose = matches!(wants, Wants::Any | Wants::Exists) && is_at;
        if is_loose && let Some(place) = self.events.iter().rposition(|event| event.id == *first) {
            return if self.has_at(place, ids) { Fate::There(place as u64) } else { wrong };
        }
        if is_at {
            return Fate::Written(self.events.len() as u64);
        }
        let places = match wants {
            // Where the stream began, and where it came back.
            Wants::NoStream => vec![0, self.shown_from],
            Wants::At(revision) => vec![usize::try_from(revision).map_or(usize::MAX, |at| at + 1)],
            Wants::Any | Wants::Exists => Vec::new(),
        };
        let place = places.into_iter().find(|place| self.has_at(*place, ids));
        place.map_or(wrong, |place| Fate::There(place as u64))
    }

    /// Whether these events stand at this place.
    fn has_at(&self, place: usize, ids: &[Id]) -> bool {
        let there = self.events.get(place..).unwrap_or_default().iter().map(|event| event.id);
        there.take(ids.len()).eq(ids.iter().copied())
    }

    /// Whether an event with one of these identifiers was ever appended.
    pub fn knows(&self, ids: &[Id]) -> bool {
        self.events.iter().any(|event| ids.contains(&event.id))
    }

    /// These events are appended, the last of them at this place.
    pub fn append(&mut self, ids: &[Id], position: u64) {
        if self.is_deleted {
            self.shown_from = self.events.len();
            self.is_deleted = false;
        }
        self.events.extend(ids.iter().map(|id| Event { id: *id, position: None }));
        if let Some(last) = self.events.last_mut() {
            last.position = Some(position);
        }
    }

    /// What a read shows: revisions and events.
    pub fn shown(&self) -> Vec<(u64, Id)> {
        if self.is_deleted || self.is_ended {
            return Vec::new();
        }
        let shown = self.events.iter().enumerate().skip(self.shown_from);
        shown.map(|(at, event)| (at as u64, event.id)).collect()
    }
}

/// All streams.
#[derive(Debug, Clone, Default)]
pub struct Streams {
    /// Each by its name.
    pub by_name: BTreeMap<&'static str, Stream>,
    /// What was appended, in the order of all events.
    pub all: Vec<(&'static str, u64, Id)>,
    /// The place of the last event that anybody was told of.
    pub top: u64,
}

impl Streams {
    /// A stream.
    pub fn of(&mut self, name: &'static str) -> &mut Stream {
        self.by_name.entry(name).or_default()
    }

    /// These events are appended to a stream, the last of them at this place.
    pub fn append(&mut self, name: &'static str, ids: &[Id], position: u64) {
        let first = self.of(name).events.len() as u64;
        self.of(name).append(ids, position);
        self.all.extend((first..).zip(ids).map(|(revision, id)| (name, revision, *id)));
        self.top = self.top.max(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(ids: &[Id]) -> Stream {
        let mut stream = Stream::default();
        stream.append(ids, 1);
        stream
    }

    #[test]
    fn a_retry_is_known_and_half_of_one_is_wrong() {
        let stream = stream(&[1, 2, 3]);
        assert_eq!(stream.fate(Wants::Any, &[2, 3]), Fate::There(1));
        assert_eq!(stream.fate(Wants::Any, &[2, 9]), Fate::Wrong(Some(2)));
        assert_eq!(stream.fate(Wants::Any, &[9, 2]), Fate::Written(3));
        assert_eq!(stream.fate(Wants::NoStream, &[1, 2]), Fate::There(0));
        assert_eq!(stream.fate(Wants::At(0), &[2, 3]), Fate::There(1));
        assert_eq!(stream.fate(Wants::At(0), &[3]), Fate::Wrong(Some(2)));
        assert_eq!(stream.fate(Wants::At(2), &[4]), Fate::Written(3));
        assert_eq!(stream.fate(Wants::At(7), &[]), Fate::Wrong(Some(2)));
    }

    #[test]
    fn a_stream_that_comes_back_goes_on_and_shows_what_is_new() {
        let mut stream = stream(&[1, 2]);
        stream.is_deleted = true;
        assert_eq!(stream.shown(), []);
        assert_eq!(stream.fate(Wants::Exists, &[3]), Fate::Wrong(Some(1)));
        assert_eq!(stream.fate(Wants::NoStream, &[3]), Fate::Written(2));
        stream.append(&[3], 5);
        assert_eq!(stream.shown(), [(2, 3)]);
        assert_eq!(stream.fate(Wants::NoStream, &[3]), Fate::There(2));
        stream.is_ended = true;
        assert_eq!(stream.fate(Wants::Any, &[4]), Fate::Ended);
    }
}
