//! Verification of a backup in an object store without a restore.

use std::sync::Arc;

use umbel_backup::{BackupError, BackupResult, ObjectRequestOptions, RestorableManifests};
use umbel_env::{Env, Objects};

use crate::object_backup::store_contents::StoreContents;

/// Result of the verification of a backup in an object store.
#[derive(Debug, Clone)]
pub struct ObjectVerifyReport {
    /// Number of the first manifest that counts.
    pub first_manifest: u64,
    /// Number of the newest manifest.
    pub newest_manifest: u64,
    /// Last sequence number of the newest manifest.
    pub last_sequence: u64,
    /// Number of tables and long values that were read.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Every damage found, with the name of the object, the cause and the remedy.
    pub damage: Vec<BackupError>,
    /// The manifests that can be restored.
    pub restorable: Vec<RestorableManifests>,
}

/// Reads every object that a manifest of the backup of a key-value store names, and checks all
/// checksums.
///
/// # Errors
/// [`BackupError::Refused`] if there is no backup of a key-value store, and failed requests, which
/// do not show whether an object is damaged.
///
/// ```
/// # use std::sync::Arc;
/// # fn main() -> Result<(), umbel::BackupError> {
/// # let objects = umbel_sim::ObjectSim::new(1);
/// # let env = objects.env();
/// # let objects = objects.client(1);
/// # let options = umbel::Options { env: env.clone(), ..umbel::Options::default() };
/// # let db = umbel::Db::open("/data", options)?;
/// db.object_backup(Arc::clone(&objects), umbel::ObjectBackupOptions::default())?.run_once()?;
/// let report = umbel::verify_objects(&env, objects, umbel::ObjectRequestOptions::default())?;
/// assert!(report.damage.is_empty());
/// # Ok(())
/// # }
/// ```
pub fn verify_objects(
    env: &Env,
    objects: Arc<dyn Objects>,
    options: ObjectRequestOptions,
) -> BackupResult<ObjectVerifyReport> {
    let outcome = umbel_backup::verify::<StoreContents>(env, objects, options)?;
    Ok(ObjectVerifyReport {
        first_manifest: outcome.first_manifest,
        newest_manifest: outcome.newest_manifest,
        last_sequence: outcome.through,
        objects: outcome.objects,
        bytes: outcome.bytes,
        damage: outcome.damage,
        restorable: outcome.restorable,
    })
}
