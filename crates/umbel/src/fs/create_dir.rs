//! Creates a directory so that its name survives a power loss, even if the process of an earlier
//! attempt died.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use umbel_base::{Error, Result};
use umbel_env::Env;

use crate::fs::filenames;

/// A file that every outer store has: a store that keeps stores of this crate in its directory.
const OUTER_STORE: &str = "CHUNKS";
/// Name of the inner store that is restored apart from its outer store.
const INNER_STORE: &str = "kv";

/// Creates the directory and its missing parents, and makes every name on the path durable.
///
/// INVARIANT: a directory's name is durable before anything is created in it. So after an
/// interrupted creation only the deepest existing directory on the path can have a name that is not
/// durable.
pub fn create(env: &Env, folder: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut present = folder;
    while !env.files.exists(present)? {
        missing.push(present);
        match parent_of(present) {
            Some(parent) => present = parent,
            None => break,
        }
    }
    if missing.last() != Some(&present) {
        match sync_name(env, present) {
            // A directory without permission to open it is not part of an earlier creation.
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

/// Returns the path of the store in whose directory `folder` lies; `None` outside of stores. The
/// creation of an event store, a backup or a checkpoint checks that no other store owns the new
/// directory. [`Db::open`] does not check, because stores keep inner stores in their directories.
///
/// [`Db::open`]: crate::Db::open
pub fn enclosing_store(env: &Env, folder: &Path) -> Option<PathBuf> {
    let resolved = env.files.resolved(folder);
    // A directory that this user cannot look into holds no store of this user.
    let has = |above: &Path, name| env.files.exists(&above.join(name)).unwrap_or_default();
    let is_store = |above: &&Path| has(above, filenames::CURRENT) || has(above, OUTER_STORE);
    resolved.ancestors().skip(1).find(is_store).map(Path::to_path_buf)
}

/// Returns an error if `folder` lies in the directory of a store, and is not the place of an inner
/// store that is restored apart from its outer store.
pub fn check_outside_or_inner(env: &Env, folder: &Path) -> Result<()> {
    let resolved = env.files.resolved(folder);
    let parent = resolved.parent().filter(|_| resolved.ends_with(INNER_STORE));
    match parent.map(|parent| env.files.exists(&parent.join(OUTER_STORE))) {
        Some(Ok(true)) => Ok(()),
        _ => check_outside(env, folder),
    }
}

/// Returns an error if `folder` lies in the directory of a store.
pub fn check_outside(env: &Env, folder: &Path) -> Result<()> {
    match enclosing_store(env, folder) {
        None => Ok(()),
        Some(store) => Err(Error::invalid(format!(
            "{} lies in the directory of the store {}, which may contain no other files; name a \
             directory outside of it",
            folder.display(),
            store.display()
        ))),
    }
}

fn parent_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

fn sync_name(env: &Env, path: &Path) -> Result<()> {
    match path.parent() {
        // A root has no name.
        None => Ok(()),
        // The name of a held directory is the responsibility of its holder.
        Some(parent) if !env.files.reaches(parent) => Ok(()),
        Some(_) => env.files.sync_dir(parent_of(path).unwrap_or(Path::new("."))),
    }
}
