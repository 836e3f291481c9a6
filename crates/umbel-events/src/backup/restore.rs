//! Restore of a store from a backup into a folder of its own.
//!
//! The chunk manifest is written last. Before the chunk manifest is written, the folder is no
//! store. A marker file says which backup is being restored, so that the same restore can resume.

use std::path::Path;
use std::time::Duration;

use umbel_env::{Access, Env, Lock, check_path};

use crate::backup::backup_manifest::{BackupFile, BackupManifest};
use crate::backup::backup_verify;
use crate::backup::copy_rate_limit::{CopyOptions, CopyThrottle};
use crate::backup::file_copy::{check_file, create_directory};
use crate::backup::restore_target::{check_target, finish, restored_manifest, write_marker};
use crate::event_log::chunk_manifest::{ChunkManifest, chunk_directory};
use crate::types::error::{Error, Result};
use crate::types::event::Position;

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// Position of the last event; 0 without events.
    pub through: Position,
    /// Number of files of the event log.
    pub files: u64,
    /// Total bytes of these files.
    pub bytes: u64,
}

/// Creates a store from a backup, in a folder that is empty or does not exist. All of the backup is
/// read and checked before anything is written. The first open of the store rebuilds the index.
///
/// # Errors
/// `Invalid` if no backup is found, or if the folder holds anything but an interrupted restore of
/// this backup. [`Error::Backup`], with the file, if the backup is damaged. [`Error::BackupInUse`]
/// if a backup into the backup's directory still runs after the lock wait. [`Error::Cancelled`] if
/// the caller cancelled the restore; the same restore then continues later.
pub fn restore(
    env: &Env,
    backup: &Path,
    target: &Path,
    options: CopyOptions<'_>,
) -> Result<RestoreReport> {
    check_path("the backup", backup)?;
    check_path("the restored store", target)?;
    let given = target;
    let (backup, target) = (&*env.files.absolute(backup)?, &*env.files.absolute(target)?);
    let there = match env.files.exists(backup)? {
        true => env.open_directory(backup)?,
        false => env.clone(),
    };
    let manifest =
        BackupManifest::read_complete(&there, backup).map_err(Error::into_backup_error)?;
    let lock_wait = options.lock_wait;
    let _backup_lock = lock_backup(&there, backup, lock_wait)?;
    let chunk_manifest = restored_manifest(env, &manifest.chunk_manifest)?;
    let marker = marker_bytes(&manifest);
    let report = RestoreReport {
        through: Position(manifest.last_position()),
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
    };
    let is_restored = |found: &ChunkManifest| is_restored(found, &chunk_manifest);
    if check_target(env, (target, given), is_restored, &marker)? {
        // Everything is complete, and only the marker was left.
        finish(&env.open_directory(target)?, target)?;
        return Ok(report);
    }
    crate::types::nested_store_check::check_not_nested(env, target)?;
    let mut pace = CopyThrottle::begin(env, options, 2 * manifest.bytes());
    let damage = backup_verify::verify_files(&there, backup, &manifest, &mut pace)?;
    if let Some(damage) = damage.into_iter().next() {
        return Err(damage.into_backup_error());
    }
    let chunks = chunk_directory(target);
    create_directory(env, target)?;
    create_directory(env, &chunks)?;
    let env = &env.open_directory(target)?;
    let _lock = env.lock(&target.join("LOCK"), lock_wait)?;
    // An operator may have replaced the directory since it was checked.
    if check_target(env, (target, given), is_restored, &marker)? {
        finish(env, target)?;
        return Ok(report);
    }
    write_marker(env, target, &marker)?;
    for (entry, file) in manifest.chunks() {
        let source = chunk_directory(backup).join(&file.name);
        let names = (&*source, &*chunks.join(&file.name));
        copy_file((&there, env), names, entry.id, file, &mut pace)
            .map_err(Error::into_backup_error)?;
    }
    env.files.sync_dir(&chunks)?;
    pace.check()?;
    chunk_manifest.clone().write(env, target)?;
    finish(env, target)?;
    Ok(report)
}

/// Locks the backup's folder against new backups during the restore, if the folder is writable.
fn lock_backup(env: &Env, backup: &Path, lock_wait: Duration) -> Result<Option<Box<dyn Lock>>> {
    match env.lock(&backup.join("LOCK"), lock_wait) {
        Ok(lock) => Ok(Some(lock)),
        Err(umbel::Error::Locked(_)) => Err(Error::BackupInUse(backup.to_path_buf())),
        // No backup can run on a medium that is not writable.
        Err(_) => Ok(None),
    }
}

/// Contents of the marker of a restore of this backup.
fn marker_bytes(manifest: &BackupManifest) -> Vec<u8> {
    let seed: String =
        manifest.chunk_manifest.seed.iter().map(|byte| format!("{byte:02x}")).collect();
    let (number, through) = (manifest.number, manifest.last_position());
    format!(
        "An event store is being restored here: store {seed}, backup {number}, through position \
         {through}. Run the restore again, or remove the folder.\n"
    )
    .into_bytes()
}

/// Whether a store's chunk manifest is what a finished restore wrote, apart from the random id of
/// the copy.
fn is_restored(found: &ChunkManifest, chunk_manifest: &ChunkManifest) -> bool {
    let mut finished = chunk_manifest.clone();
    (finished.generation, finished.instance) = (chunk_manifest.generation + 1, found.instance);
    *found == finished
}

/// Copies a file of the backup, or keeps the valid part that an interrupted restore left.
fn copy_file(
    (there, env): (&Env, &Env),
    (source, target): (&Path, &Path),
    id: u64,
    wanted: &BackupFile,
    pace: &mut CopyThrottle<'_>,
) -> Result<()> {
    if env.files.exists(target)? {
        let file = env.files.open(target, Access::ReadWrite)?;
        let is_right = file.len()? == wanted.len
            && check_file(env, target, id, wanted, |_, _| pace.check()).is_ok();
        // A cancelled check says nothing about the file.
        pace.check()?;
        if is_right {
            file.sync()?;
            return pace.record(wanted.len);
        }
        drop(file);
        env.files.remove_file(target)?;
    }
    let file = env.files.create(target)?;
    let copied = check_file(there, source, id, wanted, |block, at| {
        file.write_all_at(block, at)?;
        pace.record(block.len() as u64)
    });
    let written = copied.and_then(|()| Ok(file.sync()?));
    if written.is_err() {
        // It would only take disk space; the first failure is reported.
        let _ = env.files.remove_file(target);
    }
    written
}
