//! Types of the interface: events, their ids, revisions, positions and expected versions.

use std::fmt;

use uuid::{Builder, Uuid};

/// Id of an event, a UUID. The writer chooses it; another append with the same id is recognized as
/// a retry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub [u8; 16]);

impl EventId {
    /// Creates a random UUID (version 4) from 16 random bytes.
    pub fn from_random(bytes: [u8; 16]) -> EventId {
        EventId(Builder::from_random_bytes(bytes).into_uuid().into_bytes())
    }

    /// Creates a custom UUID (version 8) from the 16 bytes of a hash.
    pub(crate) fn from_hash(bytes: [u8; 16]) -> EventId {
        EventId(Builder::from_custom_bytes(bytes).into_uuid().into_bytes())
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(Uuid::from_bytes_ref(&self.0), f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Number of an event in its stream; the first has 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Start of a stream.
    pub const START: Revision = Revision(0);
    /// End of a stream: reading backwards from here begins with the last event.
    pub const END: Revision = Revision(u64::MAX);
}

/// Place of an event in the order of all events of a store. Positions increase, with gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// Position before the first event.
    pub const START: Position = Position(0);
    /// Position after the last event: reading backwards from here begins with it.
    pub const END: Position = Position(u64::MAX);
}

/// Direction of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Towards later events.
    Forwards,
    /// Towards earlier events.
    Backwards,
}

/// An event to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEvent<'a> {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub kind: &'a str,
    /// Whether the data is declared as JSON. Only metadata streams check that.
    pub is_json: bool,
    /// Its data.
    pub data: &'a [u8],
    /// Its metadata.
    pub metadata: &'a [u8],
}

impl<'a> NewEvent<'a> {
    /// An event whose data is JSON, without metadata.
    pub fn json(id: EventId, kind: &'a str, data: &'a [u8]) -> NewEvent<'a> {
        NewEvent { id, kind, is_json: true, data, metadata: &[] }
    }

    /// An event whose data is bytes, without metadata.
    pub fn binary(id: EventId, kind: &'a str, data: &'a [u8]) -> NewEvent<'a> {
        NewEvent { id, kind, is_json: false, data, metadata: &[] }
    }

    /// The same event with metadata.
    pub fn with_metadata(self, metadata: &'a [u8]) -> NewEvent<'a> {
        NewEvent { metadata, ..self }
    }
}

/// Event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The stream it is in.
    pub stream: String,
    /// Its revision in the stream.
    pub revision: u64,
    /// Its position among all events.
    pub position: u64,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub kind: String,
    /// Whether its data was declared as JSON.
    pub is_json: bool,
    /// Time of the append, in units of 100 ns since 1970. Never earlier than that of a previous
    /// event.
    pub created: u64,
    /// Its data.
    pub data: Vec<u8>,
    /// Its metadata.
    pub metadata: Vec<u8>,
}
