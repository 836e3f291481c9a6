//! [`StaleReadCheck`]: state that a read-only handle read, to distinguish a writer's changes from
//! damage.

use std::path::{Path, PathBuf};

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, Pin};

use crate::fs::file_cache::MissingFileExplainer;
use crate::fs::filenames::{self, FileKind};
use crate::version::Manifest;
use crate::version::current_file::CurrentFile;
use crate::version::version_edit::ManifestState;

/// `CURRENT` and the length of its manifest. Every change of a store's files changes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestMark {
    current: Option<CurrentFile>,
    manifest_bytes: Option<u64>,
}

impl ManifestMark {
    /// Reads their present state.
    pub fn take(env: &Env, folder: &Path) -> ManifestMark {
        let current = CurrentFile::read(&*env.files, folder).ok().flatten();
        let len = |current: CurrentFile| -> Result<u64> {
            let path = filenames::manifest(folder, current.manifest_id);
            env.files.open(&path, Access::Read)?.len()
        };
        ManifestMark { current, manifest_bytes: current.and_then(|current| len(current).ok()) }
    }
}

/// State that a read-only handle read. It distinguishes a file that the writer removed from a
/// missing one.
#[derive(Debug)]
pub struct StaleReadCheck {
    env: Env,
    folder: PathBuf,
    mark: ManifestMark,
}

impl StaleReadCheck {
    /// Creates the view of a handle that reads `CURRENT` and the manifest afterwards.
    pub fn new(env: &Env, folder: &Path) -> StaleReadCheck {
        let (env, folder) = (env.clone(), folder.to_path_buf());
        let mark = ManifestMark::take(&env, &folder);
        StaleReadCheck { env, folder, mark }
    }

    /// Whether the present manifest names a table.
    fn names_table(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(FileKind::Table(id)) = filenames::parse(&name) else { return false };
        let Ok(Some(state)) = Manifest::read(&self.env, &self.folder) else { return false };
        let mut tables = state.keyspaces.values().flat_map(|record| record.levels.iter().flatten());
        tables.any(|meta| meta.id == id)
    }
}

impl MissingFileExplainer for StaleReadCheck {
    fn explain(&self, path: &Path, error: Error) -> Error {
        if self.names_table(path) || ManifestMark::take(&self.env, &self.folder) == self.mark {
            return error;
        }
        let reason = "the writer has removed this file since it was opened for reading".into();
        Error::Stale { path: path.to_path_buf(), reason }
    }
}

/// Reads the manifest, and pins its version where all versions are pinned so far.
pub fn read_manifest(
    env: &Env,
    folder: &Path,
    pin: &mut Option<Box<dyn Pin>>,
) -> Result<Option<ManifestState>> {
    let recovered = Manifest::read_version(env, folder)?;
    Ok(recovered.map(|(state, version)| {
        pin_version(env, folder, pin, version);
        state
    }))
}

/// Pins the version that was read instead of all, so that the writer may remove older obsolete
/// files. Without a second pin the first one stays.
fn pin_version(env: &Env, folder: &Path, pin: &mut Option<Box<dyn Pin>>, version: u64) {
    if pin.is_some()
        && let Ok(Some(version)) = env.files.pin(&folder.join(filenames::LOCK), version)
    {
        *pin = Some(version);
    }
}
