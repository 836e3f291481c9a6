//! [`Violation`]: a stream that was not as a request expected.

use crate::event::Expected;
use crate::state::StreamState;

/// A stream that was not as a request expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which part of the request expected it.
    pub part: Part,
    /// The stream.
    pub stream: String,
    /// What was expected of it.
    pub expected: Expected,
    /// What there is of it.
    pub state: StreamState,
}

/// A part of a request, by its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One of its appends.
    Append(usize),
    /// One of its checks.
    Check(usize),
}
