//! Verification of a backup: every byte and every record.

use std::path::Path;

use umbel_env::{Access, Env, check_path};
use umbel_log::ExpectedEnd;

use crate::backup::backup_manifest::BackupManifest;
use crate::backup::copy_rate_limit::{CopyOptions, CopyThrottle};
use crate::backup::file_copy::{check_file, verify_scavenged};
use crate::event_log::chunk_manifest::{ChunkEnd, chunk_directory};
use crate::event_log::chunk_scan::scan_chunk_with_check;
use crate::types::error::{Error, Result};
use crate::types::event::Position;
use crate::verify::record_damage;

/// Result of a backup's verification.
#[derive(Debug, Clone)]
pub struct BackupVerifyReport {
    /// Position of the last event in the backup; 0 without events.
    pub through: Position,
    /// Number of backups that finished in the folder.
    pub number: u64,
    /// Number of files of the event log.
    pub files: u64,
    /// Total bytes of these files.
    pub bytes: u64,
    /// Every damage found, with its file, place and kind.
    pub damage: Vec<Error>,
}

/// Whether the folder holds a backup.
pub fn is_backup(env: &Env, folder: &Path) -> Result<bool> {
    check_path("the backup", folder)?;
    BackupManifest::exists(env, folder)
}

/// Reads every byte of the backup in `folder` and checks it. The report lists damage of the
/// backup's files. Damage of the backup's manifest is returned as an error, since nothing can be
/// checked without the manifest.
///
/// # Errors
/// `Invalid` where the folder holds no finished backup, and `Backup` for damage of the manifest.
/// Failed reads are errors, too, since they do not show whether the files are damaged; so is
/// `Cancelled`.
pub fn verify_backup(
    env: &Env,
    folder: &Path,
    options: CopyOptions<'_>,
) -> Result<BackupVerifyReport> {
    check_path("the backup", folder)?;
    let folder = &*env.files.absolute(folder)?;
    let held = if env.files.exists(folder)? { env.open_directory(folder)? } else { env.clone() };
    let env = &held;
    let manifest = BackupManifest::read_complete(env, folder).map_err(Error::into_backup_error)?;
    let mut pace = CopyThrottle::begin(env, options, manifest.bytes());
    let damage = verify_files(env, folder, &manifest, &mut pace)?;
    let damage = damage.into_iter().map(Error::into_backup_error).collect();
    Ok(BackupVerifyReport {
        through: Position(manifest.last_position()),
        number: manifest.number,
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
        damage,
    })
}

/// Checks all files of a backup and returns their damage.
pub fn verify_files(
    env: &Env,
    folder: &Path,
    manifest: &BackupManifest,
    pace: &mut CopyThrottle<'_>,
) -> Result<Vec<Error>> {
    let mut damage = Vec::new();
    for (entry, file) in manifest.chunks() {
        let path = chunk_directory(folder).join(&file.name);
        let checked =
            check_file(env, &path, entry.id, file, |block, _| pace.record(block.len() as u64));
        // The seal is a second proof: of the records, not of the copy.
        let sealed = entry.ended.and_then(|ended: ChunkEnd| ended.seal);
        let checked = checked.and_then(|()| match (&entry.scavenged, sealed) {
            (Some(scavenged), _) => {
                let file = env.files.open(&path, Access::Read)?;
                verify_scavenged(&*file, entry.id, scavenged, pace)
            }
            (None, Some(sealed)) => {
                let expectation = ExpectedEnd::Sealed(sealed);
                scan_chunk_with_check(env, folder, entry, expectation, &|| pace.check()).map(drop)
            }
            (None, None) => Ok(()),
        });
        record_damage(&mut damage, checked)?;
    }
    Ok(damage)
}
