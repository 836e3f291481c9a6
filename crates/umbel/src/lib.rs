//! Umbel: an embedded log-structured key-value store whose filters make lookups of absent keys
//! almost free.
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
//! A [`Db`] and the handles that it returns, except iterators, are `Clone + Send + Sync`.
//! [`Durability`] says what an acknowledged write survives. `docs/PROMISES.md` lists every promise
//! and limit.
//!
//! A handle belongs to the process that opened it. In a forked child every call fails with
//! [`Error::Forked`], and dropping the handle does nothing. A program that forks opens the store
//! after the fork, in one process at a time.
#![forbid(unsafe_code)]

mod advisor;
mod api;
mod cache;
mod compaction;
mod fs;
mod iter;
mod lifecycle;
mod maintenance;
mod object_backup;
mod options;
mod read;
mod shared_budget;
mod state;
mod store_budget;
mod super_version;
mod thread_counters;
mod version;
mod wal;
mod write;

#[cfg(test)]
mod test_support;

pub use crate::api::batch::Batch;
pub use crate::api::db::Db;
pub use crate::api::filter_advice::{FilterAdvice, LevelAdvice};
pub use crate::api::iterator::{DbCursor, Iter};
pub use crate::api::keyspace::Keyspace;
pub use crate::api::object_backup::ObjectBackup;
pub use crate::api::snapshot::Snapshot;
pub use crate::api::stats::{
    BlobStats, DescriptorStats, DirectoryStats, KeyspaceStats, LevelStats, LogStats, MemoryStats,
    ReaderStats, Stats,
};
pub use crate::fs::create_dir::enclosing_store;
pub use crate::lifecycle::checkpoint::CheckpointReport;
pub use crate::lifecycle::verify_store::VerifyReport;
pub use crate::object_backup::object_restore::{
    ObjectRestoreReport, RestoreTo, check_restorable, restore_from_objects,
};
pub use crate::object_backup::object_retention::{RetentionReport, retain};
pub use crate::object_backup::object_verify::{ObjectVerifyReport, verify_objects};
pub use crate::object_backup::{ObjectBackupOptions, ObjectBackupReport, ObjectBackupState};
pub use options::{
    Compression, CompressionPlan, Durability, ExistenceSize, FilterKind, FlushPrecondition,
    HashKind, KeyPrefix, KeyspaceOptions, LevelFilter, Options,
};
pub use shared_budget::{MemoryBudget, MemoryBudgetStats};
pub use umbel_backup::{
    BackupError, BackupErrorKind, BackupResult, ObjectRequestOptions, RestorableManifests,
    RetentionOptions,
};
pub use umbel_base::{Error, Result, limits};
pub use umbel_env::Env;
pub use umbel_existence::ExistenceStats;

/// Decodes a manifest record, and encodes it again if the record is well formed. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_manifest_edit(bytes: &[u8]) {
    if let Ok(edits) = version::version_edit::decode_record(bytes) {
        let mut again = Vec::new();
        version::version_edit::encode_record(&edits, &mut again);
        assert_eq!(again, bytes, "each edit has one encoding");
        let mut state = version::version_edit::ManifestState::default();
        let _ = edits.iter().try_for_each(|edit| state.apply(edit));
    }
}

/// Decodes the payload of a WAL record. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_log_payload(bytes: &[u8]) {
    let _ = state::write_batch::decode(bytes);
}

/// Decodes the objects of a backup in an object store and, where they are well formed, encodes them
/// again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_object_backup(bytes: &[u8]) {
    object_backup::store_contents::fuzz(bytes);
    umbel_backup::fuzz(bytes);
}
