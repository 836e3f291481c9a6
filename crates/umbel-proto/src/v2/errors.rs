//! `kurrentdb.protocol.v2.streams.errors`: what went wrong, as the last detail of a status.

/// The package of the details.
pub const PACKAGE: &str = "kurrentdb.protocol.v2.streams.errors";

/// Whoever asks may not. It is one of the details that every service has (`kurrent.rpc`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AccessDeniedErrorDetails {
    /// What he may not do.
    #[prost(string, tag = "1")]
    pub operation: String,
    /// Who he is.
    #[prost(string, optional, tag = "2")]
    pub username: Option<String>,
    /// What he would need.
    #[prost(string, optional, tag = "3")]
    pub permission: Option<String>,
}

/// The stream was tombstoned.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamTombstonedErrorDetails {
    /// The stream.
    #[prost(string, tag = "1")]
    pub stream: String,
}

/// The stream is at another revision.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamRevisionConflictErrorDetails {
    /// The stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// What it had to be at.
    #[prost(sint64, tag = "2")]
    pub expected_revision: i64,
    /// What it is at.
    #[prost(sint64, tag = "3")]
    pub actual_revision: i64,
}

/// A record is too large.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendRecordSizeExceededErrorDetails {
    /// Its stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Its identifier.
    #[prost(string, tag = "2")]
    pub record_id: String,
    /// Its bytes.
    #[prost(int32, tag = "3")]
    pub size: i32,
    /// How many it may have.
    #[prost(int32, tag = "4")]
    pub max_size: i32,
}

/// The records of a request together are too large.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AppendTransactionSizeExceededErrorDetails {
    /// Their bytes, as far as they were counted.
    #[prost(int32, tag = "1")]
    pub size: i32,
    /// How many they may have.
    #[prost(int32, tag = "2")]
    pub max_size: i32,
}

/// A session names a stream twice.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamAlreadyInAppendSessionErrorDetails {
    /// The stream.
    #[prost(string, tag = "1")]
    pub stream: String,
}

/// What had to be so is not.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendConsistencyViolationErrorDetails {
    /// Check by check.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<ConsistencyViolation>,
}

/// A check that does not hold.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConsistencyViolation {
    /// Its place among the checks of the request.
    #[prost(int32, tag = "1")]
    pub check_index: i32,
    /// What is not so.
    #[prost(oneof = "ViolationType", tags = "2")]
    pub violation: Option<ViolationType>,
}

/// The kinds of checks that do not hold.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ViolationType {
    /// What a stream is at.
    #[prost(message, tag = "2")]
    StreamState(StreamStateViolation),
}

/// A stream that is at something else.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamStateViolation {
    /// The stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// What it had to be at.
    #[prost(sint64, tag = "2")]
    pub expected_state: i64,
    /// What it is at.
    #[prost(sint64, tag = "3")]
    pub actual_state: i64,
}
