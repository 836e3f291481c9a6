//! [`VersionConflict`]: a stream that does not match the expected version of a request.

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
}

/// Item of a request, by its index among the appends or checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestItem {
    /// An append of the request.
    Append(usize),
    /// A check of the request.
    Check(usize),
}
