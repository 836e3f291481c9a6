//! Creating a folder so that its name survives a power loss, whoever died while doing it before.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use umbel_base::{Error, Result};
use umbel_env::Env;

use crate::names;

/// Creates the folder and what is missing above it, and makes every name on the way durable.
///
/// INVARIANT: a directory's name is durable before anything is created in it, so that of a creation
/// that broke off only the last directory that exists can have a name that is not.
pub fn create(env: &Env, folder: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut present = folder;
    while !env.files.exists(present)? {
        missing.push(present);
        match above(present) {
            Some(parent) => present = parent,
            None => break,
        }
    }
    if missing.last() != Some(&present) {
        match sync_name(env, present) {
            // A directory that may not be opened is one that no creation of ours went through.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    for path in missing.into_iter().rev() {
        env.files.create_dir_all(path)?;
        sync_name(env, path)?;
    }
    Ok(())
}

/// The store in whose directory a directory lies, and which owns everything in it; `None` where
/// there is none. What creates a store, a backup or a checkpoint asks this first; [`Db::open`] does
/// not, because stores keep stores of their own in their directories.
///
/// [`Db::open`]: crate::Db::open
pub fn store_above(env: &Env, folder: &Path) -> Option<PathBuf> {
    let resolved = env.files.resolved(folder);
    // Where a directory may not be looked into there is no store of this user.
    let has = |above: &Path, name| env.files.exists(&above.join(name)).unwrap_or_default();
    let is_store = |above: &&Path| has(above, names::CURRENT) || has(above, "CHUNKS");
    resolved.ancestors().skip(1).find(is_store).map(Path::to_path_buf)
}

/// An error where a directory lies in that of a store.
pub fn check_outside(env: &Env, folder: &Path) -> Result<()> {
    match store_above(env, folder) {
        None => Ok(()),
        Some(store) => Err(Error::invalid(format!(
            "{} lies in the directory of the store {}, in which nothing else may be; name a \
             directory outside of it",
            folder.display(),
            store.display()
        ))),
    }
}

fn above(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

fn sync_name(env: &Env, path: &Path) -> Result<()> {
    match path.parent() {
        // A root has no name.
        None => Ok(()),
        // The name of a held directory is the concern of its holder.
        Some(parent) if !env.files.reaches(parent) => Ok(()),
        Some(_) => env.files.sync_dir(above(path).unwrap_or(Path::new("."))),
    }
}
