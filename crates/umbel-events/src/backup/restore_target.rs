//! The directory of a restore: the marker of an unfinished restore, and what the directory may
//! hold.

use std::path::Path;

use umbel_env::{Access, Env};

use crate::backup::backup_manifest::{is_file_name, restore_marker_path};
use crate::event_log::chunk_manifest::{ChunkManifest, chunk_directory};
use crate::limits::{POSITION_MAX, RESTORE_GAP_BYTES};
use crate::types::error::{Error, Result};

/// Returns the chunk manifest of the restored store, which gets its own instance id. New events get
/// positions far above those of the backup. So new events do not reuse positions of events that the
/// original store got after the backup.
pub fn restored_manifest(env: &Env, backed_up: &ChunkManifest) -> Result<ChunkManifest> {
    let mut chunk_manifest = backed_up.clone();
    chunk_manifest.instance = env.entropy.id()?;
    let moved = chunk_manifest.next_start.saturating_add(RESTORE_GAP_BYTES);
    if moved < POSITION_MAX / 2 {
        chunk_manifest.next_start = moved;
    }
    Ok(chunk_manifest)
}

/// Returns an error if the backup cannot be restored into the folder. Returns whether the restore
/// is complete except for its last step.
pub fn check_target(
    env: &Env,
    (target, given): (&Path, &Path),
    is_restored: impl Fn(&ChunkManifest) -> bool,
    marker: &[u8],
) -> Result<bool> {
    let shown = given.display();
    let advice = "name an empty directory or a directory that does not exist";
    if !env.files.exists(target)? {
        return Ok(false);
    }
    let entries = env.files.read_dir(target)?;
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let is_marked = env.files.exists(&restore_marker_path(target))?;
    if has("CHUNKS") {
        if is_marked {
            let found = ChunkManifest::read(env, target)?;
            if is_restored(&found) {
                return Ok(true);
            }
        }
        return Err(Error::invalid(format!(
            "{shown} holds an event store already, which is not overwritten; {advice}"
        )));
    }
    let chunks = chunk_directory(target);
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
                "{shown} holds {what}, which is not overwritten; {advice}"
            )));
        }
    }
    // A marker is durable before the first file exists.
    if has_chunks && read_marker(env, target)? != marker {
        return Err(Error::invalid(format!(
            "{shown} holds an interrupted restore of another backup; remove the directory, or \
             {advice}"
        )));
    }
    Ok(false)
}

/// Returns the contents of the marker.
pub fn read_marker(env: &Env, target: &Path) -> Result<Vec<u8>> {
    let file = env.files.open(&restore_marker_path(target), Access::Read)?;
    let mut bytes = vec![0; file.len()?.min(4096) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Makes the marker durable.
pub fn write_marker(env: &Env, target: &Path, marker: &[u8]) -> Result<()> {
    let path = restore_marker_path(target);
    let file = match env.files.exists(&path)? {
        true => env.files.open(&path, Access::ReadWrite)?,
        false => env.files.create(&path)?,
    };
    file.set_len(marker.len() as u64)?;
    file.write_all_at(marker, 0)?;
    file.sync()?;
    Ok(env.files.sync_dir(target)?)
}

/// Removes the marker: the restore is complete.
pub fn finish(env: &Env, target: &Path) -> Result<()> {
    env.files.remove_file(&restore_marker_path(target))?;
    Ok(env.files.sync_dir(target)?)
}
