//! Backups in object stores, as far as they do not depend on what a store contains.
//!
//! FORMAT: `docs/formats/object-backup.md`. A backup is a set of objects below one prefix. The
//! object `BACKUP` says [which store](BackupIdentity) is backed up. [Pieces](Piece) hold bytes of
//! the store's files. A numbered [manifest](Manifest) names the pieces of a state, and is created
//! after all of them. What else a manifest states is up to the store: [`ManifestContents`].
//!
//! INVARIANTS:
//! 1. A manifest is created with create-if-absent under the number after the newest one, and only
//!    once every object that it names is confirmed.
//! 2. An object that a manifest is the first to name was created after the manifest before it. So
//!    an object that is older than a manifest and not in its state is in no later manifest, and
//!    retention needs no assumption about the duration of uploads.
//! 3. Bytes are verified before and while they are uploaded.
#![forbid(unsafe_code)]

mod backup_error;
mod backup_identity;
mod backup_kind;
mod chain_writer;
mod interrupted_restore;
mod lost_objects;
mod manifest;
mod manifest_chain;
mod object_requests;
mod parallel_tasks;
mod piece;
mod piece_download;
mod retention;
mod server_prefix;
mod verification;
mod writer_load;

pub use backup_error::{BackupError, BackupErrorKind, BackupResult};
pub use backup_identity::{BackupIdentity, DIRECTORY_BACKUP_MAGIC};
pub use backup_kind::BackupKind;
pub use chain_writer::{ChainWriter, Commit, TAKEOVERS_MAX};
pub use interrupted_restore::interrupted_manifest;
pub use lost_objects::LostObjects;
pub use manifest::{Manifest, ManifestContents};
pub use manifest_chain::ManifestChain;
pub use object_requests::{ObjectRequestOptions, ObjectRequests, SettledCreation};
pub use parallel_tasks::{Task, run_parallel, try_run_parallel};
pub use piece::{BLOCK_BYTES, Piece, PieceSource, SourceFile};
pub use piece_download::{download, download_to_file, read_block_checksums};
pub use retention::{RetentionOptions, RetentionOutcome, STORE_CLOCK_SLACK, retain, retain_within};
pub use server_prefix::{SERVER_KV_PREFIX, server_kv_objects};
pub use verification::{RestorableManifests, VerificationOutcome, verify};
pub use writer_load::{WriteTotals, WriterLoad};

/// Decodes the objects that are independent of a store's contents, and encodes those that are well
/// formed again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    backup_identity::fuzz(bytes);
    piece::fuzz(bytes);
}
