//! `umbel.kv.v1`: keys and values over the network.
//!
//! The definition is `proto/umbel/kv/v1/key_value.proto`, for clients of every language. The
//! messages here are written manually as all others are. A test compiles the definition and
//! compares both them and [`DESCRIPTORS`] with it.

use prost::bytes::Bytes;

/// Name of the service in request paths.
pub const SERVICE: &str = "umbel.kv.v1.KeyValue";

/// The definition as servers send it to clients: an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("../proto/umbel/kv/v1/key_value.descriptors");

/// Keyspace that an empty name means.
pub const DEFAULT_KEYSPACE: &str = "default";

/// Request for the value of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetRequest {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Key to read.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
}

/// The value of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetResponse {
    /// `None` where the key is absent.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
}

/// Request for the values of several keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MultiGetRequest {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Keys to read.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub keys: Vec<Vec<u8>>,
}

/// The values of several keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MultiGetResponse {
    /// One for each key, in the order of the keys.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<FoundValue>,
    /// Highest sequence number that the values include.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
}

/// The value of one of several keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FoundValue {
    /// `None` where the key is absent.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
}

/// Request to put a value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PutRequest {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Key to write.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Value of the key.
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
    /// Whether the server acknowledges only after fsync.
    #[prost(bool, tag = "4")]
    pub sync: bool,
}

/// Result of a put.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PutResponse {
    /// Sequence number of the write.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// Request to delete a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteRequest {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Key to delete.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Whether the server acknowledges only after fsync.
    #[prost(bool, tag = "3")]
    pub sync: bool,
}

/// Result of a delete.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteResponse {
    /// Sequence number of the write.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// Batch: several writes that are applied together or not at all.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BatchRequest {
    /// Writes in order.
    #[prost(message, repeated, tag = "1")]
    pub operations: Vec<Operation>,
    /// Conditions, which the server checks before the writes.
    #[prost(message, repeated, tag = "2")]
    pub conditions: Vec<Condition>,
    /// Whether the server acknowledges only after fsync.
    #[prost(bool, tag = "3")]
    pub sync: bool,
}

/// One write of a batch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Operation {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Kind of the write.
    #[prost(oneof = "OperationKind", tags = "2, 3, 4")]
    pub kind: Option<OperationKind>,
}

/// Kinds of writes in a batch.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum OperationKind {
    /// Puts a value.
    #[prost(message, tag = "2")]
    Put(Entry),
    /// Deletes this key.
    #[prost(bytes = "bytes", tag = "3")]
    Delete(Bytes),
    /// Deletes a range of keys.
    #[prost(message, tag = "4")]
    DeleteRange(KeyRange),
}

/// Condition of a batch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Condition {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Key to compare.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Required value; `None` requires that the key is absent.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
}

/// Result of a batch.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BatchResponse {
    /// Sequence number of the batch.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    /// Key of the entry.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Value of the entry.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// Range of keys: `start` is included, `end` is not.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyRange {
    /// First key of the range.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// First key after the range.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
}

/// Request for a scan: keys in order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScanRequest {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Prefix of the returned keys.
    #[prost(bytes = "vec", tag = "2")]
    pub prefix: Vec<u8>,
    /// Lower bound of the keys, included.
    #[prost(bytes = "vec", tag = "3")]
    pub start: Vec<u8>,
    /// Upper bound of the keys, not included; no bound where it is empty.
    #[prost(bytes = "vec", tag = "4")]
    pub end: Vec<u8>,
    /// Whether the scan returns keys in descending order.
    #[prost(bool, tag = "5")]
    pub reverse: bool,
    /// Maximum number of keys; no limit where it is 0.
    #[prost(uint64, tag = "6")]
    pub limit: u64,
    /// Whether the scan omits values.
    #[prost(bool, tag = "7")]
    pub keys_only: bool,
}

/// Some keys of a scan, in order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScanResponse {
    /// The keys with their values.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// Highest sequence number that the scan includes.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
}

/// Request for a watch: changes of keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchRequest {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Prefix of the watched keys.
    #[prost(bytes = "vec", tag = "2")]
    pub prefix: Vec<u8>,
    /// Whether the watch sends existing entries first.
    #[prost(bool, tag = "3")]
    pub with_entries: bool,
    /// Whether the watch omits values.
    #[prost(bool, tag = "4")]
    pub keys_only: bool,
}

/// Message of a watch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchResponse {
    /// Content of the message.
    #[prost(oneof = "WatchEvent", tags = "1, 2, 3")]
    pub event: Option<WatchEvent>,
}

/// Kinds of messages of a watch.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum WatchEvent {
    /// Some of the entries that existed at the start of the watch.
    #[prost(message, tag = "1")]
    Entries(Entries),
    /// End of the existing entries; changes follow.
    #[prost(message, tag = "2")]
    Started(Started),
    /// Changes of one write.
    #[prost(message, tag = "3")]
    Changes(Changes),
}

/// Some existing entries, in key order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entries {
    /// The keys with their values.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

/// Start of a watch.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Started {
    /// Highest sequence number that the watch does not report as a change.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// Changes of one write to the watched keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Changes {
    /// Sequence number of the write.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Changes in the order of the write.
    #[prost(message, repeated, tag = "2")]
    pub changes: Vec<Change>,
}

/// One change of a watched key or range.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Change {
    /// Kind of the change.
    #[prost(oneof = "ChangeKind", tags = "1, 2, 3")]
    pub kind: Option<ChangeKind>,
}

/// Kinds of changes.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ChangeKind {
    /// A value was put.
    #[prost(message, tag = "1")]
    Put(Entry),
    /// This key was deleted.
    #[prost(bytes = "bytes", tag = "2")]
    Delete(Bytes),
    /// A range of keys was deleted.
    #[prost(message, tag = "3")]
    DeleteRange(KeyRange),
}

/// Names of all keyspaces.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListKeyspacesResponse {
    /// Names in order of creation.
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
}

/// Request to create a keyspace.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateKeyspaceRequest {
    /// Name of the keyspace.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Result of a request to create a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CreateKeyspaceResponse {
    /// Whether the request created the keyspace; false where it existed.
    #[prost(bool, tag = "1")]
    pub created: bool,
}
