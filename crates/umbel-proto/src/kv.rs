//! `umbel.kv.v1`: keys and values over the network.

use crate::generated::umbel::kv::v1 as package;

pub use package::change::Kind as ChangeKind;
pub use package::operation::Kind as OperationKind;
pub use package::watch_response::Event as WatchEvent;
pub use package::{
    BatchRequest, BatchResponse, Change, Changes, Condition, CreateKeyspaceRequest,
    CreateKeyspaceResponse, DeleteRequest, DeleteResponse, DropKeyspaceRequest,
    DropKeyspaceResponse, Entries, Entry, FoundValue, GetRequest, GetResponse, KeyRange,
    ListKeyspacesResponse, MultiGetRequest, MultiGetResponse, Operation, PutRequest, PutResponse,
    ScanRequest, ScanResponse, Started, WatchRequest, WatchResponse,
};

/// Package of the service.
pub const PACKAGE: &str = "umbel.kv.v1";

/// Name of the service in request paths.
pub const SERVICE: &str = "umbel.kv.v1.KeyValue";

/// Keyspace that an empty name means.
pub const DEFAULT_KEYSPACE: &str = "default";
