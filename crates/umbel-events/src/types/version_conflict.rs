//! [`VersionConflict`]: a stream that does not match the expected version of a request.

use std::fmt;

use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_state::StreamState;

/// Stream that does not match the expected version of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionConflict {
    /// Item of the request that has the expected version.
    pub item: RequestItem,
    /// The stream.
    pub stream: String,
    /// Expected version of the stream.
    pub expected: ExpectedVersion,
    /// Actual state of the stream.
    pub state: StreamState,
    /// Events of the request that are in the stream already, where they are the cause.
    pub present: Option<PresentEvents>,
}

/// Events of a refused append that are in their stream already. An append is stored as a whole, so
/// it is neither new nor a retry of an earlier append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresentEvents {
    /// Revision of the first event.
    pub first_revision: u64,
    /// Number of the first events that are present, in order.
    pub count: u64,
    /// Number of events that the request appends to the stream.
    pub appended: u64,
}

impl fmt::Display for PresentEvents {
    /// Writes the cause and the remedy, without the stream's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PresentEvents { first_revision, count, appended } = self;
        match count < appended {
            true => write!(
                f,
                "the stream already has the first {count} of the {appended} events, from revision \
                 {first_revision} on, but not the next one; append only the missing events, or \
                 use new event ids"
            ),
            false => write!(
                f,
                "the stream already has all {appended} events, from revision {first_revision} on, \
                 but another stream of the append lacks its events; append only the missing \
                 events, or use new event ids"
            ),
        }
    }
}

/// Item of a request, by its index among the appends or checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestItem {
    /// An append of the request.
    Append(usize),
    /// A check of the request.
    Check(usize),
}
