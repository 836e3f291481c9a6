//! `kurrentdb.protocol.v2.streams.errors`: typed details of a failed status.

/// Package of the details.
pub const PACKAGE: &str = "kurrentdb.protocol.v2.streams.errors";

/// The caller lacks permission. This detail belongs to `kurrent.rpc`, which all services share.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AccessDeniedErrorDetails {
    /// Denied operation.
    #[prost(string, tag = "1")]
    pub operation: String,
    /// Name of the caller.
    #[prost(string, optional, tag = "2")]
    pub username: Option<String>,
    /// Required permission.
    #[prost(string, optional, tag = "3")]
    pub permission: Option<String>,
}

/// The stream has a tombstone.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamTombstonedErrorDetails {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
}

/// Version conflict of a stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamRevisionConflictErrorDetails {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Expected revision.
    #[prost(sint64, tag = "2")]
    pub expected_revision: i64,
    /// Actual revision.
    #[prost(sint64, tag = "3")]
    pub actual_revision: i64,
}

/// The record exceeds the size limit.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendRecordSizeExceededErrorDetails {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Id of the record.
    #[prost(string, tag = "2")]
    pub record_id: String,
    /// Size of the record in bytes.
    #[prost(int32, tag = "3")]
    pub size: i32,
    /// Maximum size in bytes.
    #[prost(int32, tag = "4")]
    pub max_size: i32,
}

/// The records of a request together exceed the size limit.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AppendTransactionSizeExceededErrorDetails {
    /// Size in bytes of the records that the server counted.
    #[prost(int32, tag = "1")]
    pub size: i32,
    /// Maximum size in bytes.
    #[prost(int32, tag = "2")]
    pub max_size: i32,
}

/// The session names a stream twice.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamAlreadyInAppendSessionErrorDetails {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
}

/// A consistency check failed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendConsistencyViolationErrorDetails {
    /// Failed checks.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<ConsistencyViolation>,
}

/// Failed check.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConsistencyViolation {
    /// Index of the check in the request.
    #[prost(int32, tag = "1")]
    pub check_index: i32,
    /// The unmet condition.
    #[prost(oneof = "ViolationType", tags = "2")]
    pub violation: Option<ViolationType>,
}

/// Kinds of failed checks.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ViolationType {
    /// Revision of a stream.
    #[prost(message, tag = "2")]
    StreamState(StreamStateViolation),
}

/// Stream with another revision than expected.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamStateViolation {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Expected revision.
    #[prost(sint64, tag = "2")]
    pub expected_state: i64,
    /// Actual revision.
    #[prost(sint64, tag = "3")]
    pub actual_state: i64,
}
