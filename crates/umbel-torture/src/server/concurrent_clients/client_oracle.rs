//! What clients did and what they were told.

use std::collections::BTreeMap;

use umbel_events::Expected;

/// The id of an event.
pub type Id = u128;

/// The revision of the event that ends a tombstoned stream.
pub const LAST_OF_ALL: u64 = umbel_events::limits::TOMBSTONE_REVISION;

/// Streams with this beginning are deleted now and then.
pub const DOOMED: &str = "doomed";
/// The stream to which one client subscribes.
pub const FOLLOWED: &str = "shared-0";

/// Events to be appended.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The stream.
    pub stream: String,
    /// What it is expected to be at.
    pub expected: Expected,
    /// The ids of the events.
    pub ids: Vec<Id>,
    /// The bytes that each event has at least.
    pub bytes: usize,
}

impl Batch {
    /// Whether the same append again, after a deletion too, comes to the same.
    pub fn is_known_again(&self) -> bool {
        !self.stream.starts_with(DOOMED)
            || matches!(self.expected, Expected::Any | Expected::Exact(_))
    }
}

/// What came of an append, as far as clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was acknowledged: revision and position of the last event.
    Acknowledged(u64, u64),
    /// It was refused.
    Refused,
    /// There was no answer.
    Unknown,
}

/// An append.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// What was appended.
    pub batch: Batch,
    /// What came of it.
    pub fate: Fate,
}

/// A deletion that was acknowledged.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The stream.
    pub stream: String,
    /// Whether it was for good.
    pub is_tombstone: bool,
    /// Where it was written.
    pub position: u64,
}

/// An event as a client was told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The stream.
    pub stream: String,
    /// The revision.
    pub revision: u64,
    /// The position.
    pub position: u64,
    /// The id.
    pub id: Id,
}

/// Everything any client knows of a store.
#[derive(Debug, Default)]
pub struct Known {
    /// Appends.
    pub attempts: Vec<Attempt>,
    /// Acknowledged deletions.
    pub endings: Vec<Ending>,
    /// What somebody saw at which position.
    pub seen: BTreeMap<u64, Id>,
    /// Positions of events that somebody saw and a power cut took.
    pub lost: BTreeMap<u64, Id>,
    /// What the subscription to all was told, over all lives.
    pub followed_all: Vec<Told>,
    /// What the subscription to a stream was told, over all lives.
    pub followed_stream: Vec<Told>,
    /// The last revision of each stream.
    pub last: BTreeMap<String, u64>,
    /// The number of the next event.
    pub next_id: u64,
    /// Revisions that refusals named.
    pub named: Vec<(String, u64)>,
}

impl Known {
    /// Notes what was seen; an error where another event was seen there.
    pub fn see(&mut self, position: u64, id: Id) -> Result<(), String> {
        match self.seen.insert(position, id) {
            Some(other) if other != id => {
                Err(format!("position {position} was seen with {other:x} and with {id:x}"))
            }
            _ => Ok(()),
        }
    }
}
