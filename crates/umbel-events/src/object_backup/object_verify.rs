//! Verification of a backup in an object store without a restore.

use std::sync::Arc;

use umbel_backup::{ObjectRequestOptions, RestorableManifests};
use umbel_env::{Env, Objects};

use crate::object_backup::object_backup_error::{ObjectBackupError, ObjectBackupResult};
use crate::object_backup::object_manifest::LogContents;
use crate::types::event::Position;

/// Manifests in a row that can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorableRange {
    /// Number of the first manifest.
    pub first: u64,
    /// Number of the last manifest.
    pub last: u64,
    /// Wall clock of the server at the first manifest, in microseconds since 1970.
    pub first_wall_micros: u64,
    /// Wall clock of the server at the last manifest, in microseconds since 1970.
    pub last_wall_micros: u64,
    /// Position of the last event of the first manifest.
    pub first_through: Position,
    /// Position of the last event of the last manifest.
    pub last_through: Position,
}

/// Result of the verification of a backup in an object store.
#[derive(Debug, Clone)]
pub struct ObjectVerifyReport {
    /// Number of the first manifest that counts.
    pub first_manifest: u64,
    /// Number of the newest manifest.
    pub newest_manifest: u64,
    /// Position of the last event of the newest manifest; 0 without events.
    pub through: Position,
    /// Number of pieces that were read.
    pub objects: u64,
    /// Bytes of these pieces.
    pub bytes: u64,
    /// Every damage found, with the name of the object, the cause and the remedy.
    pub damage: Vec<ObjectBackupError>,
    /// The manifests that can be restored.
    pub restorable: Vec<RestorableRange>,
}

/// Reads every object that a manifest of the backup names, and checks all checksums.
///
/// # Errors
/// [`ObjectBackupError::Refused`] if there is no backup, and failed requests, which do not show
/// whether an object is damaged.
pub fn verify_objects(
    env: &Env,
    objects: Arc<dyn Objects>,
    options: ObjectRequestOptions,
) -> ObjectBackupResult<ObjectVerifyReport> {
    let outcome = umbel_backup::verify::<LogContents>(env, objects, options)?;
    let range = |range: RestorableManifests| RestorableRange {
        first: range.first,
        last: range.last,
        first_wall_micros: range.first_wall_micros,
        last_wall_micros: range.last_wall_micros,
        first_through: Position(range.first_through),
        last_through: Position(range.last_through),
    };
    Ok(ObjectVerifyReport {
        first_manifest: outcome.first_manifest,
        newest_manifest: outcome.newest_manifest,
        through: Position(outcome.through),
        objects: outcome.objects,
        bytes: outcome.bytes,
        damage: outcome.damage.into_iter().map(ObjectBackupError::from).collect(),
        restorable: outcome.restorable.into_iter().map(range).collect(),
    })
}
