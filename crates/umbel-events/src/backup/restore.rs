//! Restoring a store from a backup into a folder of its own.
//!
//! The table of chunks is written last: before it is there the folder is no store, and a marker
//! says what it is and lets the same restore go on.

use std::path::Path;
use std::time::Duration;

use umbel_env::{Access, Env, Lock, check_path};

use crate::backup_copy::{CopyOptions, Pace, check_file, make_folder};
use crate::backup_manifest::{BackupFile, BackupManifest, is_file_name, marker_path};
use crate::backup_verify;
use crate::chunk_table::{ChunkTable, chunk_folder};
use crate::error::{Error, Result};
use crate::event::Position;
use crate::limits::{POSITION_MAX, RESTORE_GAP_BYTES};

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// The position of the last event; 0 where there is none.
    pub through: Position,
    /// Files of the event log.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Makes a store out of a backup, in a folder that is empty or does not exist. All of the backup
/// is read and checked before anything is written. The index is made anew when the store is opened
/// the first time.
///
/// # Errors
/// `Invalid` where there is no backup, or where the folder holds anything but an interrupted
/// restore of this backup; [`Error::Backup`] with the file where the backup is damaged.
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
        true => env.hold(backup)?,
        false => env.clone(),
    };
    let manifest = BackupManifest::read_complete(&there, backup).map_err(Error::in_backup)?;
    let lock_wait = options.lock_wait;
    let _backup_lock = hold(&there, backup, lock_wait)?;
    let table = table_of(env, &manifest)?;
    let marker = marker(&manifest);
    let report = RestoreReport {
        through: Position(manifest.through()),
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
    };
    if check_target(env, (target, given), &table, &marker)? {
        // Everything is there, and only the marker was left.
        finish(&env.hold(target)?, target)?;
        return Ok(report);
    }
    crate::open::check_above(env, target)?;
    let mut pace = Pace::begin(env, options, 2 * manifest.bytes());
    let damage = backup_verify::check(&there, backup, &manifest, &mut pace)?;
    if let Some(damage) = damage.into_iter().next() {
        return Err(damage.in_backup());
    }
    let chunks = chunk_folder(target);
    make_folder(env, target)?;
    make_folder(env, &chunks)?;
    let env = &env.hold(target)?;
    let _lock = env.lock(&target.join("LOCK"), lock_wait)?;
    // An operator may have put another directory there since it was looked at.
    if check_target(env, (target, given), &table, &marker)? {
        finish(env, target)?;
        return Ok(report);
    }
    write_marker(env, target, &marker)?;
    for (entry, file) in manifest.chunks() {
        let source = chunk_folder(backup).join(&file.name);
        let names = (&*source, &*chunks.join(&file.name));
        copy((&there, env), names, entry.id, file, &mut pace).map_err(Error::in_backup)?;
    }
    env.files.sync_dir(&chunks)?;
    table.clone().write(env, target)?;
    finish(env, target)?;
    Ok(report)
}

/// Keeps backups into the folder away for a while, where it can be written.
fn hold(env: &Env, backup: &Path, lock_wait: Duration) -> Result<Option<Box<dyn Lock>>> {
    match env.lock(&backup.join("LOCK"), lock_wait) {
        Ok(lock) => Ok(Some(lock)),
        Err(umbel::Error::Locked(_)) => Err(Error::invalid(format!(
            "somebody backs up to {} or restores from it; wait until that is done",
            backup.display()
        ))),
        // On a medium that cannot be written nobody backs up.
        Err(_) => Ok(None),
    }
}

/// The table of the restored store, which is a copy with an instance id of its own. New events get
/// positions far above those of the backup, so that they get none which the original gave to events
/// after the backup.
fn table_of(env: &Env, manifest: &BackupManifest) -> Result<ChunkTable> {
    let mut table = manifest.table.clone();
    table.instance = env.entropy.id()?;
    let moved = table.next_start.saturating_add(RESTORE_GAP_BYTES);
    if moved < POSITION_MAX / 2 {
        table.next_start = moved;
    }
    Ok(table)
}

/// What the marker of a restore of this backup says.
fn marker(manifest: &BackupManifest) -> Vec<u8> {
    let seed: String = manifest.table.seed.iter().map(|byte| format!("{byte:02x}")).collect();
    let (number, through) = (manifest.number, manifest.through());
    format!(
        "An event store is being restored here: store {seed}, backup {number}, through position \
         {through}. Run the restore again, or remove the folder.\n"
    )
    .into_bytes()
}

/// An error where nothing can be restored into the folder. Whether all is there but the end.
fn check_target(
    env: &Env,
    (target, given): (&Path, &Path),
    table: &ChunkTable,
    marker: &[u8],
) -> Result<bool> {
    let shown = given.display();
    let advice = "name an empty folder or one that does not exist";
    if !env.files.exists(target)? {
        return Ok(false);
    }
    let entries = env.files.read_dir(target)?;
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let is_marked = env.files.exists(&marker_path(target))?;
    if has("CHUNKS") {
        if is_marked {
            let found = ChunkTable::read(env, target)?;
            let mut finished = table.clone();
            (finished.generation, finished.instance) = (table.generation + 1, found.instance);
            if found == finished {
                return Ok(true);
            }
        }
        return Err(Error::invalid(format!(
            "{shown} holds an event store already, which is not overwritten; {advice}"
        )));
    }
    let chunks = chunk_folder(target);
    let mut has_chunks = false;
    for entry in &entries {
        let is_fine = match &entry.name[..] {
            "LOCK" => true,
            "RESTORING" | "CHUNKS.new" => is_marked,
            "log" if entry.is_directory => {
                let files = env.files.read_dir(&chunks)?;
                has_chunks = !files.is_empty();
                files.is_empty() || (is_marked && files.iter().all(|f| is_file_name(&f.name)))
            }
            _ => false,
        };
        if !is_fine {
            let what = match &entry.name[..] {
                "BACKUP" => "a backup".to_string(),
                "CURRENT" => "a key-value store".to_string(),
                name => format!("'{name}'"),
            };
            return Err(Error::invalid(format!(
                "{shown} holds {what}, over which nothing is restored; {advice}"
            )));
        }
    }
    // A marker is durable before the first file is there.
    if has_chunks && read_marker(env, target)? != marker {
        return Err(Error::invalid(format!(
            "{shown} holds an interrupted restore of another backup; remove the folder, or {advice}"
        )));
    }
    Ok(false)
}

fn read_marker(env: &Env, target: &Path) -> Result<Vec<u8>> {
    let file = env.files.open(&marker_path(target), Access::Read)?;
    let mut bytes = vec![0; file.len()?.min(4096) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn write_marker(env: &Env, target: &Path, marker: &[u8]) -> Result<()> {
    let path = marker_path(target);
    let file = match env.files.exists(&path)? {
        true => env.files.open(&path, Access::ReadWrite)?,
        false => env.files.create(&path)?,
    };
    file.set_len(marker.len() as u64)?;
    file.write_all_at(marker, 0)?;
    file.sync()?;
    Ok(env.files.sync_dir(target)?)
}

fn finish(env: &Env, target: &Path) -> Result<()> {
    env.files.remove_file(&marker_path(target))?;
    Ok(env.files.sync_dir(target)?)
}

/// Copies a file of the backup, or keeps what an interrupted restore has of it where that is right.
fn copy(
    (there, env): (&Env, &Env),
    (source, target): (&Path, &Path),
    id: u64,
    wanted: &BackupFile,
    pace: &mut Pace<'_>,
) -> Result<()> {
    if env.files.exists(target)? {
        let file = env.files.open(target, Access::ReadWrite)?;
        let is_right =
            file.len()? == wanted.len && check_file(env, target, id, wanted, |_, _| Ok(())).is_ok();
        if is_right {
            pace.did(wanted.len);
            return Ok(file.sync()?);
        }
        drop(file);
        env.files.remove_file(target)?;
    }
    let file = env.files.create(target)?;
    let copied = check_file(there, source, id, wanted, |block, at| {
        file.write_all_at(block, at)?;
        pace.did(block.len() as u64);
        Ok(())
    });
    let written = copied.and_then(|()| Ok(file.sync()?));
    if written.is_err() {
        // It would only take room; the first failure is the one to report.
        let _ = env.files.remove_file(target);
    }
    written
}
