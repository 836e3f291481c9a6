//! The prefix of a server's key-value store, below the prefix of its events.

use std::sync::Arc;

use umbel_env::{ObjectName, Objects, PrefixedObjects};

/// Prefix of the backup of a server's keys and values. In the store's directory they have a
/// directory of the same name.
pub const SERVER_KV_PREFIX: &str = "kv";

/// Returns the objects of a server's keys and values, which lie below those of its events.
pub fn server_kv_objects(objects: Arc<dyn Objects>) -> Arc<dyn Objects> {
    let prefix = ObjectName::new(SERVER_KV_PREFIX).expect("letters are a name");
    Arc::new(PrefixedObjects::new(objects, &prefix))
}
