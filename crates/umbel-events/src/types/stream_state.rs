//! [`StreamState`]: the state of a stream.

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// The stream never had an event.
    Missing,
    /// The stream has events.
    Live {
        /// Lowest readable revision; higher than `last` if nothing is readable.
        first: u64,
        /// The revision of the last event.
        last: u64,
    },
    /// The stream was deleted; the next append creates it again.
    Deleted {
        /// Revision of the stream's last event before the delete.
        last: u64,
    },
    /// The stream was tombstoned.
    Tombstoned,
}
