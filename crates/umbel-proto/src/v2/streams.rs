//! `kurrentdb.protocol.v2.streams`: atomic appends to several streams.

use std::collections::BTreeMap;

use prost_types::Value;

/// Name of the service in request paths.
pub const SERVICE: &str = "kurrentdb.protocol.v2.streams.StreamsService";

/// Negative numbers by which clients state an expected revision.
pub mod expected {
    /// The stream does not exist or was deleted.
    pub const NO_STREAM: i64 = -1;
    /// Any revision.
    pub const ANY: i64 = -2;
    /// The stream exists.
    pub const EXISTS: i64 = -4;
    /// The stream was deleted and does not exist. For checks.
    pub const DELETED: i64 = -5;
    /// The stream has a tombstone. For checks.
    pub const TOMBSTONED: i64 = -6;
}

/// Part of a session: records for one stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendRequest {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Records in order.
    #[prost(message, repeated, tag = "2")]
    pub records: Vec<AppendRecord>,
    /// Expected revision: a revision or one of [`expected`]. A missing value means any
    /// revision.
    #[prost(sint64, optional, tag = "3")]
    pub expected_revision: Option<i64>,
}

/// Result of the records for one stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendResponse {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Revision of the last record.
    #[prost(sint64, tag = "2")]
    pub stream_revision: i64,
    /// Position of the last record.
    #[prost(sint64, optional, tag = "3")]
    pub position: Option<i64>,
}

/// Result of a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendSessionResponse {
    /// Results by stream, in the order of the request.
    #[prost(message, repeated, tag = "1")]
    pub output: Vec<AppendResponse>,
    /// Position of the last record of the session.
    #[prost(sint64, tag = "2")]
    pub position: i64,
}

/// Format of the data of a record.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SchemaInfo {
    /// Data format.
    #[prost(enumeration = "SchemaFormat", tag = "1")]
    pub format: i32,
    /// Type of the record.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Version of the schema, where a schema registry is in use.
    #[prost(string, optional, tag = "3")]
    pub id: Option<String>,
}

/// Formats of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SchemaFormat {
    /// Unspecified.
    Unspecified = 0,
    /// JSON.
    Json = 1,
    /// Protocol buffers.
    Protobuf = 2,
    /// Avro.
    Avro = 3,
    /// Bytes.
    Bytes = 4,
}

/// Event to append.
///
/// Decoding copies the bytes out of the message. So a small record does not keep a large message
/// in memory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendRecord {
    /// Id of the record, a UUID as text. The server chooses one where it is missing.
    #[prost(string, optional, tag = "1")]
    pub record_id: Option<String>,
    /// Additional properties.
    #[prost(btree_map = "string, message", tag = "2")]
    pub properties: BTreeMap<String, Value>,
    /// Type and format of the record.
    #[prost(message, optional, tag = "3")]
    pub schema: Option<SchemaInfo>,
    /// Data of the record.
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
    /// Name of the stream, where the request does not name it.
    #[prost(string, tag = "5")]
    pub stream: String,
}

/// Records of several streams in one order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendRecordsRequest {
    /// Records in order.
    #[prost(message, repeated, tag = "1")]
    pub records: Vec<AppendRecord>,
    /// Consistency checks.
    #[prost(message, repeated, tag = "2")]
    pub checks: Vec<ConsistencyCheck>,
}

/// Consistency check of an append.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConsistencyCheck {
    /// Kind of the check.
    #[prost(oneof = "CheckType", tags = "1")]
    pub check: Option<CheckType>,
}

/// Kinds of checks.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum CheckType {
    /// Expected revision of a stream.
    #[prost(message, tag = "1")]
    StreamState(StreamStateCheck),
}

/// Expected revision of a stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamStateCheck {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// A revision or one of [`expected`].
    #[prost(sint64, tag = "2")]
    pub expected_state: i64,
}

/// Result of an append of records.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendRecordsResponse {
    /// Results by stream, in the order of first mention.
    #[prost(message, repeated, tag = "1")]
    pub revisions: Vec<StreamRevision>,
    /// Position of the last record of the request.
    #[prost(sint64, tag = "2")]
    pub position: i64,
}

/// Revision of a stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamRevision {
    /// Name of the stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Revision of the last event.
    #[prost(sint64, tag = "2")]
    pub revision: i64,
}
