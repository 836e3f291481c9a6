//! `kurrentdb.protocol.v2.streams`: appending to several streams, all or nothing.

use std::collections::BTreeMap;

use prost_types::Value;

/// The service's name in paths.
pub const SERVICE: &str = "kurrentdb.protocol.v2.streams.StreamsService";

/// The numbers by which clients say what they expect of a stream where that is no revision.
pub mod expected {
    /// It does not exist, or was deleted.
    pub const NO_STREAM: i64 = -1;
    /// Whatever it is.
    pub const ANY: i64 = -2;
    /// It exists.
    pub const EXISTS: i64 = -4;
    /// It was deleted, and did not come back. For checks.
    pub const DELETED: i64 = -5;
    /// It was tombstoned. For checks.
    pub const TOMBSTONED: i64 = -6;
}

/// A part of a session: records for one stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendRequest {
    /// The stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// The records, in order.
    #[prost(message, repeated, tag = "2")]
    pub records: Vec<AppendRecord>,
    /// What the stream must be at: a revision or one of [`expected`]. Whatever it is where this
    /// is missing.
    #[prost(sint64, optional, tag = "3")]
    pub expected_revision: Option<i64>,
}

/// What came of the records for one stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendResponse {
    /// The stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// The revision of the last of them.
    #[prost(sint64, tag = "2")]
    pub stream_revision: i64,
    /// The position of the last of them.
    #[prost(sint64, optional, tag = "3")]
    pub position: Option<i64>,
}

/// What came of a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendSessionResponse {
    /// Stream by stream, in the order in which they came.
    #[prost(message, repeated, tag = "1")]
    pub output: Vec<AppendResponse>,
    /// The position of the last record of all.
    #[prost(sint64, tag = "2")]
    pub position: i64,
}

/// What the data of a record is like.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SchemaInfo {
    /// Its format.
    #[prost(enumeration = "SchemaFormat", tag = "1")]
    pub format: i32,
    /// The record's type.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The version of the schema, where there is a registry of them.
    #[prost(string, optional, tag = "3")]
    pub id: Option<String>,
}

/// The formats of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SchemaFormat {
    /// Nobody said.
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

/// An event to be appended.
///
/// Its bytes are copied out of the message, so that a small record of a large message does not keep
/// all of that in memory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendRecord {
    /// Its identifier, a UUID as text. The server chooses one where it is missing.
    #[prost(string, optional, tag = "1")]
    pub record_id: Option<String>,
    /// What is said about it besides.
    #[prost(btree_map = "string, message", tag = "2")]
    pub properties: BTreeMap<String, Value>,
    /// Its type and format.
    #[prost(message, optional, tag = "3")]
    pub schema: Option<SchemaInfo>,
    /// Its data.
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
    /// Its stream, where the request does not name it.
    #[prost(string, tag = "5")]
    pub stream: String,
}

/// Records of several streams, one behind the other.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendRecordsRequest {
    /// The records, in order.
    #[prost(message, repeated, tag = "1")]
    pub records: Vec<AppendRecord>,
    /// What has to be so.
    #[prost(message, repeated, tag = "2")]
    pub checks: Vec<ConsistencyCheck>,
}

/// Something that has to be so.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConsistencyCheck {
    /// What.
    #[prost(oneof = "CheckType", tags = "1")]
    pub check: Option<CheckType>,
}

/// The kinds of checks.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum CheckType {
    /// What a stream is at.
    #[prost(message, tag = "1")]
    StreamState(StreamStateCheck),
}

/// What a stream has to be at.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamStateCheck {
    /// The stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// A revision or one of [`expected`].
    #[prost(sint64, tag = "2")]
    pub expected_state: i64,
}

/// What came of records.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AppendRecordsResponse {
    /// Stream by stream, in the order in which they were first named.
    #[prost(message, repeated, tag = "1")]
    pub revisions: Vec<StreamRevision>,
    /// The position of the last record of all.
    #[prost(sint64, tag = "2")]
    pub position: i64,
}

/// What a stream is at.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamRevision {
    /// The stream.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// The revision of its last event.
    #[prost(sint64, tag = "2")]
    pub revision: i64,
}
