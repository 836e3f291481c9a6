//! Kind of store in a directory, by its file names.

use std::path::Path;

pub use umbel_server::KV_DIRECTORY;

/// Name of a file that every event store has, and no other directory.
const EVENT_STORE_FILE: &str = "CHUNKS";

/// Name of a file that every key-value store has.
const KV_STORE_FILE: &str = "CURRENT";

/// Whether the directory holds a key-value store.
pub fn is_kv_store(directory: &Path) -> bool {
    directory.join(KV_STORE_FILE).exists() && !is_event_store(directory)
}

/// Whether the directory holds an event store.
pub fn is_event_store(directory: &Path) -> bool {
    directory.join(EVENT_STORE_FILE).exists()
}
