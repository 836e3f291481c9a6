//! Verifying a backup: every byte of it, and every record.

use std::path::Path;

use umbel_env::{Access, Env, check_path};
use umbel_log::Expectation;

use crate::backup_copy::{CopyOptions, Pace, check_file};
use crate::backup_manifest::BackupManifest;
use crate::chunk_read::read_chunk;
use crate::chunk_table::{Ended, chunk_folder};
use crate::error::{Error, Result};
use crate::event::Position;
use crate::packed;
use crate::verify::note;

/// What verifying a backup found.
#[derive(Debug, Clone)]
pub struct BackupVerifyReport {
    /// The position of the last event in it; 0 where there is none.
    pub through: Position,
    /// How many backups came to their end in the folder.
    pub number: u64,
    /// Files of the event log.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is damaged: file, place, and what is wrong there.
    pub damage: Vec<Error>,
}

/// Whether there is a backup in the folder.
pub fn is_backup(env: &Env, folder: &Path) -> Result<bool> {
    check_path("the backup", folder)?;
    BackupManifest::exists(env, folder)
}

/// Reads every byte of the backup in `folder` and checks it. Damage of its files is in the report;
/// damage of its manifest, without which nothing is known, is the error.
///
/// # Errors
/// `Invalid` where there is no backup or none came to its end, `Backup` of the manifest, and
/// what the system refuses to read, of which nobody knows whether it is damaged.
pub fn verify_backup(
    env: &Env,
    folder: &Path,
    options: CopyOptions<'_>,
) -> Result<BackupVerifyReport> {
    check_path("the backup", folder)?;
    let folder = &*env.files.absolute(folder)?;
    let held = if env.files.exists(folder)? { env.hold(folder)? } else { env.clone() };
    let env = &held;
    let manifest = BackupManifest::read_complete(env, folder).map_err(Error::in_backup)?;
    let mut pace = Pace::begin(env, options, manifest.bytes());
    let damage = check(env, folder, &manifest, &mut pace)?;
    let damage = damage.into_iter().map(Error::in_backup).collect();
    Ok(BackupVerifyReport {
        through: Position(manifest.through()),
        number: manifest.number,
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
        damage,
    })
}

/// Checks all files of a backup and returns what is wrong with them.
pub fn check(
    env: &Env,
    folder: &Path,
    manifest: &BackupManifest,
    pace: &mut Pace<'_>,
) -> Result<Vec<Error>> {
    let mut damage = Vec::new();
    for (entry, file) in manifest.chunks() {
        let path = chunk_folder(folder).join(&file.name);
        let checked = check_file(env, &path, entry.id, file, |block, _| {
            pace.did(block.len() as u64);
            Ok(())
        });
        // The seal is a second proof, of the records and not of the copy.
        let sealed = entry.ended.and_then(|ended: Ended| ended.sealed);
        let checked = checked.and_then(|()| match (&entry.packed, sealed) {
            (Some(packed), _) => {
                let file = env.files.open(&path, Access::Read)?;
                Ok(packed::check(&*file, entry.id, packed)?)
            }
            (None, Some(sealed)) => {
                read_chunk(env, folder, entry, Expectation::Sealed(sealed)).map(|_| ())
            }
            (None, None) => Ok(()),
        });
        note(&mut damage, checked)?;
    }
    Ok(damage)
}
