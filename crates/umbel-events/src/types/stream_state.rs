//! [`StreamState`]: the state of a stream.

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// It never had an event.
    Missing,
    /// It has events.
    Live {
        /// Lowest readable revision; higher than `last` if nothing is readable.
        first: u64,
        /// The revision of the last event.
        last: u64,
    },
    /// It was deleted; the next append creates it again.
    Deleted {
        /// Revision of the last event that it had.
        last: u64,
    },
    /// It was tombstoned.
    Tombstoned,
}
