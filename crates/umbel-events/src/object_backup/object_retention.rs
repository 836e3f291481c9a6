//! Retention of a backup in an object store, and the objects that still hold earlier versions of
//! chunks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use umbel_backup::{BackupKind, ManifestChain, ManifestContents, ObjectRequests, RetentionOptions};
use umbel_env::{Env, ObjectName, Objects};

use crate::object_backup::object_backup_error::ObjectBackupResult;
use crate::object_backup::object_manifest::LogContents;
use crate::object_backup::piece_names::{file_of_name, piece_name};
use crate::types::event::Position;

/// Result of a retention, or what it would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionReport {
    /// Number of the first manifest that counts afterwards.
    pub first_manifest: u64,
    /// Position of the last event of this manifest: the earliest one to which the backup can be
    /// restored as it was then.
    pub first_through: Position,
    /// Deleted manifests.
    pub deleted_manifests: u64,
    /// Deleted pieces.
    pub deleted_pieces: u64,
    /// Bytes of the deleted objects.
    pub deleted_bytes: u64,
    /// Pieces that no manifest names and that are too young to be deleted.
    pub young_pieces: u64,
}

/// An object that holds an earlier version of a chunk's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingCopy {
    /// Name of the object.
    pub object: String,
    /// Bytes of the object.
    pub bytes: u64,
    /// Id of the chunk.
    pub chunk: u64,
    /// Version of the chunk's file.
    pub version: u64,
    /// Whether the newest manifest names the object: the next run of the backup replaces it.
    pub is_current: bool,
}

/// Deletes what is not needed to restore the backup to any moment of the last `keep`, by the
/// object store's clock. The state at the beginning of that time stays, and all manifests since the
/// full one before it.
///
/// A retention can run beside a backup, and beside other retentions. After an error, the next
/// retention continues.
///
/// # Errors
/// [`Refused`](crate::ObjectBackupError::Refused) if there is no backup or the store reports no
/// times. Damage of a manifest, or a missing piece, of what would be kept: then nothing is deleted.
pub fn retain(
    env: &Env,
    objects: Arc<dyn Objects>,
    options: RetentionOptions,
) -> ObjectBackupResult<RetentionReport> {
    let requests = ObjectRequests::new(env, objects, options.requests.clone());
    retain_within(&requests, options.keep, options.dry_run)
}

/// Does the work of [`retain`] with these requests.
pub fn retain_within(
    requests: &ObjectRequests,
    keep: Duration,
    dry_run: bool,
) -> ObjectBackupResult<RetentionReport> {
    let done = umbel_backup::retain_within::<LogContents>(requests, keep, dry_run)?;
    Ok(RetentionReport {
        first_manifest: done.first_manifest,
        first_through: Position(done.first_state.through),
        deleted_manifests: done.deleted_manifests,
        deleted_pieces: done.deleted_pieces,
        deleted_bytes: done.deleted_bytes,
        young_pieces: done.young_pieces,
    })
}

/// Returns the objects that hold an earlier version of a chunk's file than the store has, after a
/// scavenge or a redaction. `versions` has the present version of each chunk, by id.
pub fn remaining_copies(
    requests: &ObjectRequests,
    versions: &HashMap<u64, u64>,
) -> ObjectBackupResult<Vec<RemainingCopy>> {
    let mut objects = Vec::new();
    for prefix in BackupKind::Events.piece_prefixes() {
        objects.extend(requests.list(prefix)?);
    }
    let (_, chain) = ManifestChain::<LogContents>::find(requests)?;
    let state = chain.state(chain.newest.number)?;
    let named = LogContents::pieces(&state);
    let current: HashSet<ObjectName> =
        named.iter().map(|(file, piece)| piece_name(*file, piece)).collect();
    let mut copies = Vec::new();
    for object in &objects {
        let Some(file) = file_of_name(object.name.as_str()) else { continue };
        if versions.get(&file.id).is_some_and(|now| file.version < *now) {
            copies.push(RemainingCopy {
                object: object.name.as_str().to_owned(),
                bytes: object.bytes,
                chunk: file.id,
                version: file.version,
                is_current: current.contains(&object.name),
            });
        }
    }
    Ok(copies)
}
