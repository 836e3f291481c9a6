//! Retention of a backup in an object store.

use std::sync::Arc;
use std::time::Duration;

use umbel_backup::{BackupResult, ObjectRequests, RetentionOptions, RetentionOutcome};
use umbel_env::{Env, Objects};

use crate::object_backup::store_contents::{BackupState, StoreContents};

/// Result of a retention, or what it would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionReport {
    /// Number of the first manifest that counts afterwards.
    pub first_manifest: u64,
    /// Time of the state of this manifest, in microseconds since 1970: the earliest one that can be
    /// restored.
    pub first_captured_micros: u64,
    /// Deleted manifests.
    pub deleted_manifests: u64,
    /// Deleted tables and long values.
    pub deleted_objects: u64,
    /// Bytes of the deleted objects and manifests.
    pub deleted_bytes: u64,
    /// Objects that no manifest names and that are too young to be deleted.
    pub young_objects: u64,
}

/// Deletes what is not needed to restore the backup of a key-value store to any moment of the last
/// `keep`, by the object store's clock. The state at the beginning of that time stays.
///
/// A retention can run beside a backup, and beside other retentions. After an error, the next
/// retention continues.
///
/// # Errors
/// [`Refused`](crate::BackupError::Refused) if there is no backup of a key-value store, or the
/// object store reports no times. Damage of a manifest, or a missing object, of what would be kept:
/// then nothing is deleted.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # fn main() -> Result<(), umbel::BackupError> {
/// # let objects = umbel_sim::ObjectSim::new(1);
/// # let env = objects.env();
/// # let objects = objects.client(1);
/// # let options = umbel::Options { env: env.clone(), ..umbel::Options::default() };
/// # let db = umbel::Db::open("/data", options)?;
/// # db.object_backup(Arc::clone(&objects), umbel::ObjectBackupOptions::default())?.run_once()?;
/// let keep = Duration::from_secs(30 * 24 * 3600);
/// let requests = umbel::ObjectRequestOptions::default();
/// let options = umbel::RetentionOptions { keep, dry_run: true, requests };
/// let report = umbel::retain(&env, objects, options)?;
/// assert_eq!(report.deleted_objects, 0);
/// # Ok(())
/// # }
/// ```
pub fn retain(
    env: &Env,
    objects: Arc<dyn Objects>,
    options: RetentionOptions,
) -> BackupResult<RetentionReport> {
    umbel_backup::retain::<StoreContents>(env, objects, options).map(RetentionReport::from)
}

/// Does the work of [`retain`] with these requests, and deletes.
pub fn retain_within(requests: &ObjectRequests, keep: Duration) -> BackupResult<RetentionReport> {
    let done = umbel_backup::retain_within::<StoreContents>(requests, keep, false);
    done.map(RetentionReport::from)
}

impl From<RetentionOutcome<BackupState>> for RetentionReport {
    fn from(done: RetentionOutcome<BackupState>) -> RetentionReport {
        RetentionReport {
            first_manifest: done.first_manifest,
            first_captured_micros: done.first_state.captured_micros,
            deleted_manifests: done.deleted_manifests,
            deleted_objects: done.deleted_pieces,
            deleted_bytes: done.deleted_bytes,
            young_objects: done.young_pieces,
        }
    }
}
