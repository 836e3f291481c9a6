//! [`KvCallContext`]: the state that every call of the key-value service needs.

use std::sync::Arc;

use crate::kv_store::KvStore;
use crate::protocol::deadline::Deadline;
use crate::server_context::ServerContext;

/// The server, the key-value store and the deadline of one call.
#[derive(Debug, Clone)]
pub struct KvCallContext {
    pub(super) service: Arc<ServerContext>,
    pub(super) kv: Arc<KvStore>,
    pub(super) deadline: Deadline,
}
