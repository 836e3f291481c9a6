//! `umbel.kv.v1`: keys and values over the network.
//!
//! The definition is `proto/umbel/kv/v1/key_value.proto`, for clients of every language. The
//! messages here are written by hand as all others are; a test compiles the definition and compares
//! both them and [`DESCRIPTORS`] with it.

use prost::bytes::Bytes;

/// The service's name in paths.
pub const SERVICE: &str = "umbel.kv.v1.KeyValue";

/// The definition as servers tell it to clients: an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("../proto/umbel/kv/v1/key_value.descriptors");

/// The keyspace that an empty name means.
pub const DEFAULT_KEYSPACE: &str = "default";

/// Asks for the value of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetRequest {
    /// The keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// The key.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
}

/// The value of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetResponse {
    /// `None` where it has none.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
}

/// Asks for the values of several keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MultiGetRequest {
    /// The keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// The keys.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub keys: Vec<Vec<u8>>,
}

/// The values of several keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MultiGetResponse {
    /// One for each key, in the order of the keys.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<FoundValue>,
    /// The newest write that they show.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
}

/// The value of one of several keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FoundValue {
    /// `None` where it has none.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
}

/// Gives a key a value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PutRequest {
    /// The keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// The key.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// The value.
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
    /// Whether it is answered only once it survives power loss.
    #[prost(bool, tag = "4")]
    pub sync: bool,
}

/// A value was put.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PutResponse {
    /// The number of the write.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// Takes a key's value away.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteRequest {
    /// The keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// The key.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Whether it is answered only once it survives power loss.
    #[prost(bool, tag = "3")]
    pub sync: bool,
}

/// A key was deleted.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteResponse {
    /// The number of the write.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// Several writes, all of them or none.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BatchRequest {
    /// The writes, in their order.
    #[prost(message, repeated, tag = "1")]
    pub operations: Vec<Operation>,
    /// What has to be so before them.
    #[prost(message, repeated, tag = "2")]
    pub conditions: Vec<Condition>,
    /// Whether it is answered only once it survives power loss.
    #[prost(bool, tag = "3")]
    pub sync: bool,
}

/// One write of a batch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Operation {
    /// The keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// What is done.
    #[prost(oneof = "OperationKind", tags = "2, 3, 4")]
    pub kind: Option<OperationKind>,
}

/// What a write of a batch does.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum OperationKind {
    /// Gives a key a value.
    #[prost(message, tag = "2")]
    Put(Entry),
    /// Takes that of this key away.
    #[prost(bytes = "bytes", tag = "3")]
    Delete(Bytes),
    /// Takes those of a range of keys away.
    #[prost(message, tag = "4")]
    DeleteRange(KeyRange),
}

/// What has to be so for a batch to be written.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Condition {
    /// The keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// The key.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// The value it must have; `None` where it must have none.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
}

/// A batch was written.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BatchResponse {
    /// The number of the write.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// The keys from one up to, and without, another.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyRange {
    /// The first key.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// The key behind the last one.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
}

/// Asks for keys in their order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScanRequest {
    /// The keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Only keys that begin so.
    #[prost(bytes = "vec", tag = "2")]
    pub prefix: Vec<u8>,
    /// Only keys from this one on.
    #[prost(bytes = "vec", tag = "3")]
    pub start: Vec<u8>,
    /// Only keys before this one; to the last one where it is empty.
    #[prost(bytes = "vec", tag = "4")]
    pub end: Vec<u8>,
    /// Whether the last key comes first.
    #[prost(bool, tag = "5")]
    pub reverse: bool,
    /// Most keys; all where it is 0.
    #[prost(uint64, tag = "6")]
    pub limit: u64,
    /// Whether values are left out.
    #[prost(bool, tag = "7")]
    pub keys_only: bool,
}

/// Some keys, in their order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScanResponse {
    /// The keys with their values.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// The newest write that the scan shows.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
}

/// Asks for what changes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchRequest {
    /// The keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Only keys that begin so.
    #[prost(bytes = "vec", tag = "2")]
    pub prefix: Vec<u8>,
    /// Whether it is told first what there is.
    #[prost(bool, tag = "3")]
    pub with_entries: bool,
    /// Whether values are left out.
    #[prost(bool, tag = "4")]
    pub keys_only: bool,
}

/// What a watch tells.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchResponse {
    /// What it tells.
    #[prost(oneof = "WatchEvent", tags = "1, 2, 3")]
    pub event: Option<WatchEvent>,
}

/// What a watch tells.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum WatchEvent {
    /// Some of what there was when it began.
    #[prost(message, tag = "1")]
    Entries(Entries),
    /// That was all; changes follow.
    #[prost(message, tag = "2")]
    Started(Started),
    /// What one write did.
    #[prost(message, tag = "3")]
    Changes(Changes),
}

/// Some keys, in their order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entries {
    /// The keys with their values.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

/// Where a watch begins.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Started {
    /// The newest write that it does not tell of.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// What one write did to the keys that are watched.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Changes {
    /// The number of the write.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// What it did, in its order.
    #[prost(message, repeated, tag = "2")]
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Change {
    /// What changed.
    #[prost(oneof = "ChangeKind", tags = "1, 2, 3")]
    pub kind: Option<ChangeKind>,
}

/// What changed.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ChangeKind {
    /// A key was given a value.
    #[prost(message, tag = "1")]
    Put(Entry),
    /// That of this key was taken away.
    #[prost(bytes = "bytes", tag = "2")]
    Delete(Bytes),
    /// Those of a range of keys were.
    #[prost(message, tag = "3")]
    DeleteRange(KeyRange),
}

/// The names of all keyspaces.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListKeyspacesResponse {
    /// In the order in which they were made.
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
}

/// Asks for a keyspace to be made.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateKeyspaceRequest {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// There is such a keyspace now.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CreateKeyspaceResponse {
    /// Whether there was none before.
    #[prost(bool, tag = "1")]
    pub created: bool,
}
