//! [`StreamState`]: what there is of a stream.

/// What there is of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// It never had an event.
    Missing,
    /// It has events.
    Live {
        /// The lowest revision that can be read; higher than `last` where nothing can.
        first: u64,
        /// The revision of the last event.
        last: u64,
    },
    /// It was deleted; the next append creates it again.
    Deleted {
        /// The revision of the last event it had.
        last: u64,
    },
    /// It was tombstoned.
    Tombstoned,
}
