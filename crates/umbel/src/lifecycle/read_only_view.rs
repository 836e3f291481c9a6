//! [`ReadView`]: what a read-only handle read, to tell what a writer changed from what is damaged.

use std::path::{Path, PathBuf};

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, Pin};

use crate::descriptors::MissingFile;
use crate::names::{self, FileKind};
use crate::version::Manifest;
use crate::version::current::Current;
use crate::version::edit::State;

/// `CURRENT` and the length of the manifest it names: what every change of a store's files changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    current: Option<Current>,
    manifest_bytes: Option<u64>,
}

impl Mark {
    /// What can be read of them now.
    pub fn take(env: &Env, folder: &Path) -> Mark {
        let current = Current::read(&*env.files, folder).ok().flatten();
        let len = |current: Current| -> Result<u64> {
            let path = names::manifest(folder, current.manifest_id);
            env.files.open(&path, Access::Read)?.len()
        };
        Mark { current, manifest_bytes: current.and_then(|current| len(current).ok()) }
    }
}

/// What a read-only handle read, by which it tells a file that the writer removed from one that is
/// missing.
#[derive(Debug)]
pub struct ReadView {
    env: Env,
    folder: PathBuf,
    mark: Mark,
}

impl ReadView {
    /// The view of a handle that reads `CURRENT` and the manifest after this.
    pub fn begin(env: &Env, folder: &Path) -> ReadView {
        let (env, folder) = (env.clone(), folder.to_path_buf());
        let mark = Mark::take(&env, &folder);
        ReadView { env, folder, mark }
    }

    /// Whether the manifest as it is now names a table.
    fn names_table(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(FileKind::Table(id)) = names::parse(&name) else { return false };
        let Ok(Some(state)) = Manifest::read(&self.env, &self.folder) else { return false };
        let mut tables = state.keyspaces.values().flat_map(|record| record.levels.iter().flatten());
        tables.any(|meta| meta.id == id)
    }
}

impl MissingFile for ReadView {
    fn explain(&self, path: &Path, error: Error) -> Error {
        if self.names_table(path) || Mark::take(&self.env, &self.folder) == self.mark {
            return error;
        }
        let reason = "the writer has removed this file since it was opened for reading".into();
        Error::Stale { path: path.to_path_buf(), reason }
    }
}

/// Reads the manifest, and pins its version where all is pinned so far.
pub fn read_manifest(
    env: &Env,
    folder: &Path,
    pin: &mut Option<Box<dyn Pin>>,
) -> Result<Option<State>> {
    let recovered = Manifest::read_version(env, folder)?;
    Ok(recovered.map(|(state, version)| {
        pin_version(env, folder, pin, version);
        state
    }))
}

/// Pins the version that was read in the place of all, so that the writer may remove what was
/// obsolete before. Without a second pin the first one stays.
fn pin_version(env: &Env, folder: &Path, pin: &mut Option<Box<dyn Pin>>, version: u64) {
    if pin.is_some()
        && let Ok(Some(version)) = env.files.pin(&folder.join(names::LOCK), version)
    {
        *pin = Some(version);
    }
}
