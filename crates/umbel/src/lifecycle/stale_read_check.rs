//! [`StaleReadCheck`]: the state that a read-only handle read, by which a writer's changes are
//! distinguished from damage.

use std::path::{Path, PathBuf};

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, Pin};

use crate::fs::file_cache::MissingFileExplainer;
use crate::fs::filenames::{self, FileKind};
use crate::version::Manifest;
use crate::version::current_file::CurrentFile;
use crate::version::version_edit::ManifestState;

/// `CURRENT` and the length of its manifest. Every change of a store's files changes at least one
/// of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestMark {
    current: Option<CurrentFile>,
    manifest_bytes: Option<u64>,
}

impl ManifestMark {
    /// Reads `CURRENT` and the length of its manifest.
    pub fn take(env: &Env, folder: &Path) -> ManifestMark {
        let current = CurrentFile::read(&*env.files, folder).ok().flatten();
        let len = |current: CurrentFile| -> Result<u64> {
            let path = filenames::manifest(folder, current.manifest_id);
            env.files.open(&path, Access::Read)?.len()
        };
        ManifestMark { current, manifest_bytes: current.and_then(|current| len(current).ok()) }
    }
}

/// The state that a read-only handle read, by which a file that the writer removed is distinguished
/// from a lost file.
#[derive(Debug)]
pub struct StaleReadCheck {
    env: Env,
    folder: PathBuf,
    mark: ManifestMark,
}

impl StaleReadCheck {
    /// Creates the view of a handle. REQUIRES: the handle reads `CURRENT` and the manifest
    /// afterwards.
    pub fn new(env: &Env, folder: &Path) -> StaleReadCheck {
        let (env, folder) = (env.clone(), folder.to_path_buf());
        let mark = ManifestMark::take(&env, &folder);
        StaleReadCheck { env, folder, mark }
    }

    /// Whether the present manifest names the table at `path`.
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

/// Reads the manifest. If `pin` pins all versions, pins the manifest's version instead.
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

/// Pins `version` instead of all versions, so that the writer can remove older obsolete files. If
/// the new pin fails, the old pin stays.
fn pin_version(env: &Env, folder: &Path, pin: &mut Option<Box<dyn Pin>>, version: u64) {
    if pin.is_some()
        && let Ok(Some(version)) = env.files.pin(&folder.join(filenames::LOCK), version)
    {
        *pin = Some(version);
    }
}
