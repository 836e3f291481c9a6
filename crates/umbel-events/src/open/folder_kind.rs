//! What a folder without a table of chunks holds, where that can be told.

use std::path::Path;

use umbel_env::{Env, check_path};

use crate::backup_manifest::check_no_backup;
use crate::chunk_table::{ChunkTable, chunk_folder};
use crate::error::{Error, Result};

/// An error that says what a folder is which is no event store: a backup, a restore that has not
/// come to its end, a store that lost its table of chunks, or a key-value store. Nothing is said of
/// an event store, and of a folder that is empty, missing or somebody else's.
///
/// # Errors
/// `Corruption` where the table of chunks is missing, otherwise `Invalid`, and what the system
/// refuses.
pub fn check_mistaken(env: &Env, folder: &Path) -> Result<()> {
    check_path("the event store", folder)?;
    if !env.files.exists(folder)? {
        return Ok(());
    }
    // All is found in one directory, although another one may get its name meanwhile.
    let folder = &*env.files.absolute(folder)?;
    let env = &env.hold(folder)?;
    if ChunkTable::exists(env, folder)? {
        return Ok(());
    }
    check_no_backup(env, folder)?;
    let chunks = chunk_folder(folder);
    let has_chunks = env.files.exists(&chunks)?
        && env.files.read_dir(&chunks)?.iter().any(|entry| entry.name.ends_with(".chunk"));
    if has_chunks {
        // A backup has no index, but a store may have lost its own.
        let reason = match env.files.exists(&folder.join("index"))? {
            true => "the table of chunks is missing, but there are chunks",
            false => {
                "the table of chunks is missing, or the file BACKUP if this is a backup, but there \
                 are chunks"
            }
        };
        return Err(umbel::Error::corruption(&folder.join("CHUNKS"), 0, reason).into());
    }
    if env.files.exists(&folder.join("CURRENT"))? {
        return Err(Error::invalid(format!(
            "{} is no event store: it holds a key-value store; name another folder",
            folder.display()
        )));
    }
    Ok(())
}
