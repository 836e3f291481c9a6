//! Detects what a folder without a chunk manifest holds.

use std::path::Path;

use umbel_env::{Env, check_path};

use crate::backup::backup_manifest::check_no_backup;
use crate::event_log::chunk_manifest::{ChunkManifest, chunk_directory};
use crate::types::error::{Error, Result};

/// Returns an error that describes a folder without an event store: a backup, an unfinished
/// restore, a key-value store, or a store without its chunk manifest. Returns no error for an event
/// store, nor for an empty, missing or unrelated folder.
///
/// # Errors
/// `Corruption` where the chunk manifest is missing, otherwise `Invalid`, and failed calls of the
/// system.
pub fn check_folder_kind(env: &Env, folder: &Path) -> Result<()> {
    check_path("the event store", folder)?;
    if !env.files.exists(folder)? {
        return Ok(());
    }
    // All checks read the same directory, although another one may get its name meanwhile.
    let folder = &*env.files.absolute(folder)?;
    let env = &env.open_directory(folder)?;
    if ChunkManifest::exists(env, folder)? {
        return Ok(());
    }
    check_no_backup(env, folder)?;
    let chunks = chunk_directory(folder);
    let has_chunks = env.files.exists(&chunks)?
        && env.files.read_dir(&chunks)?.iter().any(|entry| entry.name.ends_with(".chunk"));
    if has_chunks {
        // A backup has no index, but a store may have lost its index.
        let reason = match env.files.exists(&folder.join("index"))? {
            true => "the chunk manifest is missing, but there are chunks",
            false => {
                "the chunk manifest is missing, or the file BACKUP if this is a backup, but there \
                 are chunks"
            }
        };
        return Err(umbel::Error::corruption(&folder.join("CHUNKS"), 0, reason).into());
    }
    if env.files.exists(&folder.join("CURRENT"))? {
        return Err(Error::invalid(format!(
            "{} is not an event store: the directory holds a key-value store; name another \
             directory",
            folder.display()
        )));
    }
    Ok(())
}
