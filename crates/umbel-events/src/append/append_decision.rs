//! What an append is answered, by the state of its stream, what it expects, and whether it was
//! there before. `docs/event-store.md` has the table; every cell of it is a test.

use crate::error::{Error, Result};
use crate::event::{EventId, Expected, NewEvent};
use crate::head::Head;
use crate::limits::TOMBSTONE_REVISION;
use crate::settings::Settings;
use crate::state::StreamState;

/// What is known of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its head; `None` where it never had an event.
    pub head: Option<Head>,
    /// What its metadata says; `None` where it never had any.
    pub settings: Option<Settings>,
    /// The position of the last event that this was learned from; 0 where nobody asks.
    pub rests_on: u64,
}

impl Known {
    /// Whether it was deleted, to be created again by the next append.
    pub fn is_deleted(&self) -> bool {
        self.settings.is_some_and(|settings| settings.is_deleted())
    }

    /// The revision of the last event.
    pub fn last(&self) -> Option<u64> {
        self.head.filter(|head| !is_empty(head)).map(|head| head.last_revision)
    }

    /// An error where it was tombstoned.
    pub fn check_usable(&self, stream: &str) -> Result<()> {
        if self.head.is_some_and(|head| head.is_tombstoned) {
            return Err(Error::Deleted { stream: stream.to_string() });
        }
        Ok(())
    }

    /// Whether it is as expected.
    pub fn fits(&self, expected: Expected) -> bool {
        match expected {
            Expected::Any => true,
            Expected::NoStream => self.last().is_none() || self.is_deleted(),
            Expected::Exists => {
                !self.is_deleted() && (self.last().is_some() || self.settings.is_some())
            }
            Expected::Exact(revision) => self.last() == Some(revision),
            Expected::Deleted => self.last().is_some() && self.is_deleted(),
            Expected::Tombstoned => self.head.is_some_and(|head| head.is_tombstoned),
        }
    }

    /// Whether it is as a check expects, of which nothing is written. Who expects no stream is
    /// content with one that can never be one again.
    pub fn holds(&self, expected: Expected) -> bool {
        let is_tombstoned = self.head.is_some_and(|head| head.is_tombstoned);
        match expected {
            Expected::Any | Expected::NoStream if is_tombstoned => true,
            expected => {
                self.fits(expected) && (is_tombstoned == (expected == Expected::Tombstoned))
            }
        }
    }

    /// The error where it is not as expected.
    pub fn wrong(&self, stream: &str, expected: Expected) -> Error {
        Error::WrongExpected { stream: stream.to_string(), expected, current: self.last() }
    }
}

impl StreamState {
    pub(crate) fn of(known: &Known) -> StreamState {
        let Some(head) = known.head else { return StreamState::Missing };
        if head.is_tombstoned {
            return StreamState::Tombstoned;
        }
        let last = head.last_revision;
        debug_assert!(last < TOMBSTONE_REVISION, "only a tombstone has it");
        match known.settings {
            Some(settings) if settings.is_deleted() => StreamState::Deleted { last },
            settings => {
                let first = settings.unwrap_or_default().first_revision(last);
                StreamState::Live { first, last }
            }
        }
    }
}

/// Whether the head is that of a stream which was tombstoned before it had any event.
fn is_empty(head: &Head) -> bool {
    head.is_tombstoned && head.id == head.last_position
}

/// What has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// To append, beginning with this revision.
    Append {
        /// The revision of the first new event.
        first: u64,
    },
    /// Nothing: the events are there already.
    Already {
        /// The revision of the first of them.
        first: u64,
        /// The revision of the last of them.
        last: u64,
        /// The position of the last of them.
        position: u64,
    },
    /// Nothing: there are no events to append, and the stream is as expected.
    Nothing,
}

/// Looks at what is written.
pub trait Written {
    /// Id and position of the event with this revision of the stream; `None` where there is none.
    fn event(&mut self, revision: u64) -> Result<Option<(EventId, u64)>>;
    /// The revision of an event of the stream with this id among the newest of the store.
    fn recent(&mut self, id: EventId) -> Result<Option<u64>>;
}

/// How new events compare with those written from some revision on.
enum Comparison {
    /// All of them are there; the position of the last.
    All(u64),
    /// The first is, another is not.
    Part,
    /// The first is not.
    None,
}

fn compare(events: &[NewEvent<'_>], first: u64, written: &mut dyn Written) -> Result<Comparison> {
    #[cfg(feature = "canary")]
    if umbel_base::canary::Switch::EventsRetryForgotten.is_on() {
        return Ok(Comparison::None);
    }
    let mut position = 0;
    for (revision, event) in (first..).zip(events) {
        match written.event(revision)? {
            Some((there, at)) if there == event.id => position = at,
            _ if revision == first => return Ok(Comparison::None),
            _ => return Ok(Comparison::Part),
        }
    }
    Ok(Comparison::All(position))
}

/// Decides about an append of these events, of which only the ids count.
///
/// # Errors
/// `Deleted` and `WrongExpected`, and what goes wrong when looking at what is written.
pub fn decide(
    stream: &str,
    known: &Known,
    expected: Expected,
    events: &[NewEvent<'_>],
    written: &mut dyn Written,
) -> Result<Decision> {
    known.check_usable(stream)?;
    let wrong = || known.wrong(stream, expected);
    let Some(first_event) = events.first() else {
        return if known.fits(expected) { Ok(Decision::Nothing) } else { Err(wrong()) };
    };
    #[cfg(feature = "canary")]
    if umbel_base::canary::Switch::EventsExpectedIgnored.is_on() {
        return Ok(Decision::Append { first: known.last().map_or(0, |last| last + 1) });
    }
    let already = |first: u64, position: u64| {
        let last = first + events.len() as u64 - 1;
        Decision::Already { first, last, position }
    };
    if matches!(expected, Expected::Any | Expected::Exists)
        && (expected == Expected::Any || known.fits(expected))
        && let Some(first) = written.recent(first_event.id)?
    {
        return match compare(events, first, written)? {
            Comparison::All(position) => Ok(already(first, position)),
            Comparison::Part | Comparison::None => Err(wrong()),
        };
    }
    if known.fits(expected) {
        return Ok(Decision::Append { first: known.last().map_or(0, |last| last + 1) });
    }
    let Some(last) = known.last() else { return Err(wrong()) };
    // Where the events would be if this were a retry.
    let truncated = known.settings.map(|settings| settings.truncate_before);
    let came_back = truncated.filter(|first| *first > 0);
    let places = match expected {
        Expected::NoStream => [Some(0), came_back],
        Expected::Deleted => [came_back, None],
        Expected::Exact(revision) if revision < last => [Some(revision + 1), None],
        _ => [None, None],
    };
    for first in places.into_iter().flatten() {
        if let Comparison::All(position) = compare(events, first, written)? {
            return Ok(already(first, position));
        }
    }
    Err(wrong())
}
