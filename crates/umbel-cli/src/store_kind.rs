//! What a folder holds, as far as its names tell.

use std::path::Path;

/// The file that every event store has, and nothing else.
const EVENT_STORE: &str = "CHUNKS";

/// The folder of the keys and values that a server keeps, in that of its event store.
pub const KV_FOLDER: &str = "kv";

/// Whether the folder holds an event store.
pub fn is_event_store(folder: &Path) -> bool {
    folder.join(EVENT_STORE).exists()
}
