//! Calls of clients and the answers to them.

use std::collections::{BTreeMap, HashMap};

use umbel_events::ExpectedVersion;

/// The id of an event.
pub type ClientEventId = u128;

/// The revision of the event that ends a tombstoned stream.
pub const LAST_OF_ALL: u64 = umbel_events::limits::TOMBSTONE_REVISION;

/// Prefix of the streams that are sometimes deleted.
pub const DELETED_PREFIX: &str = "doomed";
/// The stream to which one client subscribes.
pub const SUBSCRIBED_STREAM: &str = "shared-0";

/// Events to append.
#[derive(Debug, Clone)]
pub struct ClientBatch {
    /// The stream.
    pub stream: String,
    /// Expected revision.
    pub expected: ExpectedVersion,
    /// The ids of the events.
    pub ids: Vec<ClientEventId>,
    /// Minimum number of bytes in each event.
    pub bytes: usize,
}

impl ClientBatch {
    /// Whether a retry, even after a deletion, has the same effect. With *any*, a deletion ends the
    /// recognition of earlier events.
    pub fn is_idempotent_retry(&self) -> bool {
        !self.stream.starts_with(DELETED_PREFIX)
            || matches!(self.expected, ExpectedVersion::Exact(_))
    }
}

/// Outcome of an append, as clients know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFate {
    /// The append was acknowledged; the values are revision and position of its last event.
    Acknowledged(u64, u64),
    /// The append was refused.
    Refused,
    /// The client received no answer.
    Unknown,
}

/// An append that a client attempted.
#[derive(Debug, Clone)]
pub struct ClientAttempt {
    /// The appended batch.
    pub batch: ClientBatch,
    /// Outcome of the append.
    pub fate: ClientFate,
}

/// An acknowledged deletion.
#[derive(Debug, Clone)]
pub struct StreamDeletion {
    /// The stream.
    pub stream: String,
    /// Whether the deletion was a tombstone.
    pub is_tombstone: bool,
    /// Position of the deletion's event.
    pub position: u64,
}

/// An event as a client received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedEvent {
    /// The stream.
    pub stream: String,
    /// The revision.
    pub revision: u64,
    /// The position.
    pub position: u64,
    /// The id.
    pub id: ClientEventId,
}

/// Everything that any client knows of a store.
#[derive(Debug, Default)]
pub struct ClientOracle {
    /// Appends of all clients.
    pub attempts: Vec<ClientAttempt>,
    /// Acknowledged deletions.
    pub deletions: Vec<StreamDeletion>,
    /// Events that a reader saw, by position.
    pub seen: BTreeMap<u64, ClientEventId>,
    /// Events that a reader saw and a power cut removed, by position.
    pub lost: BTreeMap<u64, ClientEventId>,
    /// Events that the subscription to all events received, over all crash cycles.
    pub subscribed_all: Vec<ReceivedEvent>,
    /// Events that the subscription to a stream received, over all crash cycles.
    pub subscribed_stream: Vec<ReceivedEvent>,
    /// The last revision of each stream.
    pub last: BTreeMap<String, u64>,
    /// The number of the next event.
    pub next_id: u64,
    /// Revisions that refusals named.
    pub named: Vec<(String, u64)>,
}

impl ClientOracle {
    /// Records a seen event; fails if another event was seen at the same position.
    pub fn note_seen(&mut self, position: u64, id: ClientEventId) -> Result<(), String> {
        match self.seen.insert(position, id) {
            Some(other) if other != id => {
                Err(format!("position {position} was seen with {other:x} and with {id:x}"))
            }
            _ => Ok(()),
        }
    }
}

/// Content of a store.
#[derive(Debug, Default)]
pub struct ServerContents {
    /// All events by position.
    pub all: Vec<ReceivedEvent>,
    /// Events by stream, without tombstones.
    pub streams: BTreeMap<String, Vec<ReceivedEvent>>,
    pub(super) place: HashMap<ClientEventId, ReceivedEvent>,
}

impl ServerContents {
    /// Position of the newest event; 0 without events.
    pub(super) fn newest(&self) -> u64 {
        self.all.last().map_or(0, |event| event.position)
    }
}
