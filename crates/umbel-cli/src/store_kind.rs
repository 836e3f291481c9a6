//! Kind of store in a directory, by its file names.

use std::path::Path;

/// The file that every event store has, and nothing else.
const EVENT_STORE_FILE: &str = "CHUNKS";

/// The directory of the keys and values that a server keeps, in that of its event store.
pub const KV_DIRECTORY: &str = "kv";

/// Whether the directory holds an event store.
pub fn is_event_store(directory: &Path) -> bool {
    directory.join(EVENT_STORE_FILE).exists()
}
