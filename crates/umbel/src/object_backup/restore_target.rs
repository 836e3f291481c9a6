//! The directory of a restore: the marker of an unfinished restore, and what the directory may
//! hold.

use std::path::Path;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env};

use crate::fs::filenames::{self, FileKind};
use crate::version::Manifest;

/// Maximum bytes of a marker.
const MARKER_BYTES_MAX: u64 = 4096;

/// Content of the directory of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreTarget {
    /// Nothing, or an interrupted restore of the same state.
    Unfinished,
    /// The restored store; only the marker is left.
    Restored,
}

impl RestoreTarget {
    /// Inspects the directory `path`, which the user calls `given`.
    ///
    /// # Errors
    /// `Invalid` if it holds anything else.
    pub fn inspect(
        env: &Env,
        (path, given): (&Path, &Path),
        marker: &[u8],
    ) -> Result<RestoreTarget> {
        if !env.files.exists(path)? {
            return Ok(RestoreTarget::Unfinished);
        }
        let shown = given.display();
        let advice = "name an empty directory or a directory that does not exist";
        let entries = env.files.read_dir(path)?;
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        let found = match has(filenames::RESTORING) {
            true => Some(read_marker(env, path)?),
            false => None,
        };
        let is_same = found.as_deref() == Some(marker);
        if has(filenames::CURRENT) {
            // The state is durable before CURRENT names it.
            if is_same && Manifest::read(env, path).is_ok_and(|state| state.is_some()) {
                return Ok(RestoreTarget::Restored);
            }
            return Err(Error::invalid(format!(
                "{shown} holds a key-value store already, which is not overwritten; {advice}"
            )));
        }
        let mut has_files = false;
        for entry in &entries {
            let is_file = matches!(
                filenames::parse(&entry.name),
                Some(
                    FileKind::Table(_)
                        | FileKind::Blob(_)
                        | FileKind::Manifest(_)
                        | FileKind::CurrentNew
                )
            );
            has_files |= is_file;
            let is_marker = entry.name == filenames::RESTORING;
            if !(entry.name == filenames::LOCK || is_marker || (is_file && found.is_some())) {
                let name = &entry.name;
                return Err(Error::invalid(format!(
                    "{shown} holds '{name}', which is not overwritten; {advice}"
                )));
            }
        }
        // A marker is durable before the first file exists.
        match has_files && !is_same {
            true => Err(Error::invalid(format!(
                "{shown} holds an interrupted restore of another state; remove the directory, or \
                 {advice}"
            ))),
            false => Ok(RestoreTarget::Unfinished),
        }
    }
}

/// Reads the marker.
pub fn read_marker(env: &Env, path: &Path) -> Result<Vec<u8>> {
    let file = env.files.open(&path.join(filenames::RESTORING), Access::Read)?;
    let mut bytes = vec![0; file.len()?.min(MARKER_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Makes the marker durable.
pub fn write_marker(env: &Env, path: &Path, marker: &[u8]) -> Result<()> {
    let name = path.join(filenames::RESTORING);
    let file = match env.files.exists(&name)? {
        true => env.files.open(&name, Access::ReadWrite)?,
        false => env.files.create(&name)?,
    };
    file.set_len(marker.len() as u64)?;
    file.write_all_at(marker, 0)?;
    file.sync()?;
    env.files.sync_dir(path)
}

/// Removes files that an interrupted restore wrote after all tables and long values.
pub fn remove_unfinished_manifest(env: &Env, path: &Path) -> Result<()> {
    for entry in env.files.read_dir(path)? {
        let kind = filenames::parse(&entry.name);
        if matches!(kind, Some(FileKind::Manifest(_) | FileKind::CurrentNew)) {
            env.files.remove_file(&path.join(&entry.name))?;
        }
    }
    Ok(())
}

/// Removes the marker: the restore is complete.
pub fn finish(env: &Env, path: &Path) -> Result<()> {
    env.files.remove_file(&path.join(filenames::RESTORING))?;
    env.files.sync_dir(path)
}
