//! Types of the public interface: events, their ids, revisions and positions.

use std::fmt;

use uuid::{Builder, Uuid};

use crate::limits::{EVENT_BYTES_MAX, EVENT_SCHEMA_BYTES_MAX};
use crate::types::event_schema;

/// Id of an event, a UUID. The client chooses the id; another append with the same id is recognized
/// as a retry.
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

/// Number of an event in its stream; the first event has revision 0.
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
    /// Position after the last event: reading backwards from here begins with the last event.
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
    /// Id of the event.
    pub id: EventId,
    /// Type of the event.
    pub kind: &'a str,
    /// Whether the data is declared as JSON. The store checks this declaration only in metadata
    /// streams.
    pub is_json: bool,
    /// Data of the event.
    pub data: &'a [u8],
    /// Metadata of the event.
    pub metadata: &'a [u8],
}

impl<'a> NewEvent<'a> {
    /// Creates an event whose data is JSON, without metadata.
    pub fn json(id: EventId, kind: &'a str, data: &'a [u8]) -> NewEvent<'a> {
        NewEvent { id, kind, is_json: true, data, metadata: &[] }
    }

    /// Creates an event whose data is bytes, without metadata.
    pub fn binary(id: EventId, kind: &'a str, data: &'a [u8]) -> NewEvent<'a> {
        NewEvent { id, kind, is_json: false, data, metadata: &[] }
    }

    /// Returns the same event with this metadata.
    pub fn with_metadata(self, metadata: &'a [u8]) -> NewEvent<'a> {
        NewEvent { metadata, ..self }
    }

    /// Bytes of data and metadata that the limit of an event counts. The `$schema` members that the
    /// server writes first into metadata are left out, so that every protocol has the same limit.
    pub fn limited_bytes(&self) -> usize {
        let bytes = self.data.len() + self.metadata.len();
        if bytes <= EVENT_BYTES_MAX {
            return bytes;
        }
        bytes - event_schema::member_bytes(self.metadata).min(EVENT_SCHEMA_BYTES_MAX)
    }
}

/// Event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Stream of the event.
    pub stream: String,
    /// Revision of the event in its stream.
    pub revision: u64,
    /// Position of the event among all events.
    pub position: u64,
    /// Id of the event.
    pub id: EventId,
    /// Type of the event.
    pub kind: String,
    /// Whether the event's data was declared as JSON.
    pub is_json: bool,
    /// Time of the append, in units of 100 ns since 1970. Never earlier than the time of a previous
    /// event.
    pub created: u64,
    /// Data of the event.
    pub data: Vec<u8>,
    /// Metadata of the event.
    pub metadata: Vec<u8>,
}
