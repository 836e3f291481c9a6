//! [`WriteRequest`]: an atomic write with conditions.

use umbel::Keyspace;
use umbel_proto::kv::OperationKind;

use crate::resources::inbound_quota::QuotaShare;

/// An atomic write: all operations or none.
#[derive(Debug)]
pub struct WriteRequest {
    /// The operations in the order of the request.
    pub operations: Vec<WriteOperation>,
    /// Conditions checked before the operations.
    pub conditions: Vec<WriteCondition>,
    /// Whether the write is acknowledged only after a sync, whatever the server's own setting.
    pub sync: bool,
    /// The write's share of the quota for all writes in flight.
    #[expect(dead_code, reason = "the field is kept for its Drop, as long as the operations")]
    pub share: QuotaShare,
}

/// One operation.
#[derive(Debug)]
pub struct WriteOperation {
    /// The keyspace of the operation.
    pub keyspace: Keyspace,
    /// The kind of the operation and its arguments.
    pub kind: OperationKind,
}

/// A condition on the value of one key.
#[derive(Debug)]
pub struct WriteCondition {
    /// The keyspace of the key.
    pub keyspace: Keyspace,
    /// The key.
    pub key: Vec<u8>,
    /// The expected value; `None` if the key must not exist.
    pub value: Option<Vec<u8>>,
}
