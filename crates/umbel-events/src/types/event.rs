//! The words of the interface: events, their ids, revisions, positions, what is expected.

use std::fmt;

/// The id of an event, a UUID. Who appends chooses it; appending the same one again is known to be
/// a retry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub [u8; 16]);

impl EventId {
    /// A random UUID (version 4) out of 16 random bytes.
    pub fn from_random(bytes: [u8; 16]) -> EventId {
        EventId::of_version(4, bytes)
    }

    /// A UUID of our own making (version 8) out of the 16 bytes of a hash.
    pub(crate) fn from_hash(bytes: [u8; 16]) -> EventId {
        EventId::of_version(8, bytes)
    }

    fn of_version(version: u8, mut bytes: [u8; 16]) -> EventId {
        bytes[6] = bytes[6] & 0x0f | version << 4;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        EventId(bytes)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The number of an event in its stream; the first has 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Where a stream begins.
    pub const START: Revision = Revision(0);
    /// Where a stream ends: reading backwards from here begins with the last event.
    pub const END: Revision = Revision(u64::MAX);
}

/// Where an event stands in the order of all events of a store. Positions grow, with gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// Before the first event.
    pub const START: Position = Position(0);
    /// Behind the last event: reading backwards from here begins with it.
    pub const END: Position = Position(u64::MAX);
}

/// Which way to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Towards what was written later.
    Forwards,
    /// Towards what was written earlier.
    Backwards,
}

/// What an append expects of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Any,
    /// That it has no events, or was deleted.
    NoStream,
    /// That it has events or metadata, and was not deleted.
    Exists,
    /// That its last event has this revision.
    Exact(u64),
    /// That it was deleted, and did not come back.
    Deleted,
    /// That it was tombstoned. Nobody can append to it then: it is for checks.
    Tombstoned,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Any => f.write_str("nothing was expected"),
            Expected::NoStream => f.write_str("no events were expected"),
            Expected::Exists => f.write_str("events were expected"),
            Expected::Exact(revision) => write!(f, "revision {revision} was expected"),
            Expected::Deleted => f.write_str("a deletion was expected"),
            Expected::Tombstoned => f.write_str("a tombstone was expected"),
        }
    }
}

/// An event to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEvent<'a> {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub kind: &'a str,
    /// Whether the data is said to be JSON. Nothing checks that but in metadata streams.
    pub is_json: bool,
    /// Its data.
    pub data: &'a [u8],
    /// What is said about it besides.
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

/// An event as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The stream it is in.
    pub stream: String,
    /// Its number in the stream.
    pub revision: u64,
    /// Where it stands among all events.
    pub position: u64,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub kind: String,
    /// Whether its data was said to be JSON.
    pub is_json: bool,
    /// When it was appended, in units of 100 ns since 1970. Never less than that of an earlier
    /// event.
    pub created: u64,
    /// Its data.
    pub data: Vec<u8>,
    /// What was said about it besides.
    pub metadata: Vec<u8>,
}
