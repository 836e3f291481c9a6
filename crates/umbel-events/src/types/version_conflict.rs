//! [`VersionConflict`]: a stream that does not match the expected version of a request.

use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_state::StreamState;

/// Stream that does not match the expected version of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionConflict {
    /// Item of the request with the expectation.
    pub item: RequestItem,
    /// The stream.
    pub stream: String,
    /// Its expected version.
    pub expected: ExpectedVersion,
    /// Its actual state.
    pub state: StreamState,
}

/// Item of a request, by its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestItem {
    /// One of its appends.
    Append(usize),
    /// One of its checks.
    Check(usize),
}
