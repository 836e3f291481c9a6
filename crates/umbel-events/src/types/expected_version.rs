//! [`ExpectedVersion`]: the state that an append requires of its stream (expected revision).

use std::fmt;

/// Condition of an append on its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// No condition.
    Any,
    /// The stream has no events, or was deleted.
    NoStream,
    /// The stream has events or metadata, and was not deleted.
    Exists,
    /// The last event of the stream has this revision.
    Exact(u64),
    /// The stream was deleted, and not created again.
    Deleted,
    /// The stream was tombstoned. Only checks can use it: no append to such a stream succeeds.
    Tombstoned,
}

impl fmt::Display for ExpectedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectedVersion::Any => f.write_str("nothing was expected"),
            ExpectedVersion::NoStream => f.write_str("no events were expected"),
            ExpectedVersion::Exists => f.write_str("events were expected"),
            ExpectedVersion::Exact(revision) => write!(f, "revision {revision} was expected"),
            ExpectedVersion::Deleted => f.write_str("a deletion was expected"),
            ExpectedVersion::Tombstoned => f.write_str("a tombstone was expected"),
        }
    }
}
