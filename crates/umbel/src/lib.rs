//! Umbel: an embedded log-structured key-value store in which asking for something that is *not*
//! there costs almost nothing.
//!
//! ```
//! # fn main() -> umbel::Result<()> {
//! # let folder = tempfile::tempdir().expect("a temporary folder");
//! # let path = folder.path().join("data");
//! let db = umbel::Db::open(&path, umbel::Options::default())?;
//! let users = db.keyspace("users", umbel::KeyspaceOptions::default())?;
//! users.put(b"ada", b"1815")?;
//! assert_eq!(users.get(b"ada")?.as_deref(), Some(&b"1815"[..]));
//! for entry in users.prefix(b"a") {
//!     let (key, value) = entry?;
//!     println!("{} {}", key.escape_ascii(), value.escape_ascii());
//! }
//! let mut batch = db.batch(); // atomic across keyspaces
//! batch.put(&users, b"grace", b"1906");
//! batch.delete(&users, b"ada");
//! batch.commit(umbel::Durability::Synced)?;
//! let view = db.snapshot(); // a consistent view across keyspaces
//! assert_eq!(users.get_at(&view, b"ada")?, None);
//! db.close()
//! # }
//! ```
//!
//! A [`Db`] is `Clone + Send + Sync`, and so is everything it hands out but iterators. What an
//! acknowledged write survives is said by [`Durability`]; `docs/PROMISES.md` has every promise and
//! limit.
//!
//! A handle belongs to the process that opened it. In a forked child every call is refused with
//! [`Error::Forked`] and dropping it does nothing: open a store after the fork, in one process at a
//! time.
#![forbid(unsafe_code)]

mod advise;
mod advisor;
mod background;
mod batch;
mod blobs;
mod budget;
mod by_hand;
mod cache;
mod carry;
mod checkpoint;
mod close;
mod commit;
mod compact;
mod compaction;
mod counters;
mod cursor_memory;
mod db;
mod descriptors;
mod evidence;
mod existence;
mod existence_keys;
mod existence_upkeep;
mod facts;
mod filter_choice;
mod flush;
mod flush_gate;
mod flush_now;
mod folder;
mod freeze;
mod garbage;
mod handle;
mod hashers;
mod held_back;
mod inputs;
mod iter;
mod keyspace;
mod keyspace_core;
mod long_values;
mod memory;
mod memory_budget;
mod memory_walk;
mod names;
mod obsolete;
mod open;
mod open_read_only;
mod options;
mod output;
#[cfg(test)]
mod page;
mod patient_files;
mod poison;
mod put_off;
mod read;
mod read_view;
mod recovery;
mod relog;
mod reserve;
mod reserved_space;
mod residence;
mod room;
mod scan;
mod segments;
mod shares;
mod sharing;
mod shortage;
mod snapshot;
mod snapshots;
mod sources;
mod spill;
mod stats;
mod store;
mod verify;
mod version;
mod view_cursor;
mod wal;
mod way;
mod weigh;
mod writes;

pub use advise::{FilterAdvice, LevelAdvice};
pub use batch::Batch;
pub use checkpoint::CheckpointReport;
pub use db::Db;
pub use folder::store_above;
pub use keyspace::Keyspace;
pub use memory_budget::{MemoryBudget, MemoryBudgetStats};
pub use options::{
    Compression, CompressionPlan, Durability, ExistenceSize, FilterKind, FlushGate, HashKind,
    KeyPrefix, KeyspaceOptions, LevelFilter, Options,
};
pub use scan::{DbCursor, Iter};
pub use snapshot::Snapshot;
pub use stats::{
    BlobStats, DescriptorStats, DirectoryStats, KeyspaceStats, LevelStats, LogStats, MemoryStats,
    ReaderStats, Stats,
};
pub use umbel_base::{Error, Result, limits};
pub use umbel_env::Env;
pub use umbel_existence::ExistenceStats;
pub use verify::VerifyReport;

/// Decodes a manifest record and, where it is well formed, encodes it again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_manifest_edit(bytes: &[u8]) {
    if let Ok(edits) = version::edit::decode_record(bytes) {
        let mut again = Vec::new();
        version::edit::encode_record(&edits, &mut again);
        assert_eq!(again, bytes, "each edit has one encoding");
        let mut state = version::edit::State::default();
        let _ = edits.iter().try_for_each(|edit| state.apply(edit));
    }
}

/// Decodes a write-ahead log payload. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_log_payload(bytes: &[u8]) {
    let _ = writes::decode(bytes);
}
