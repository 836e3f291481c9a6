//! Statistics of the location of a store's directory.

use std::fmt;
use std::path::{Path, PathBuf};

use umbel_env::{DirectoryLocation, FileSystem};

use crate::state::store::Store;

/// Directory of an open store. A handle keeps using the directory that it opened, even if the path
/// later leads elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryStats {
    /// The absolute path by which the store was opened.
    pub path: PathBuf,
    /// Whether `path` now leads to another directory or does not exist.
    pub is_moved: bool,
    /// The present path of the directory, if the directory was moved and the system reports where.
    pub path_now: Option<PathBuf>,
    /// Whether the directory was removed. The store is lost when the handle of a removed directory
    /// closes.
    pub is_removed: bool,
    /// Random number of this copy of the store; the creation of a store or checkpoint draws a new
    /// one. `None` if the store is of an earlier version and open read-only.
    pub instance_id: Option<[u8; 16]>,
}

impl DirectoryStats {
    /// Locates the directory that `files` has open and that was opened by `path`.
    pub fn new(files: &dyn FileSystem, path: &Path, instance_id: Option<[u8; 16]>) -> Self {
        let path = path.to_path_buf();
        let stats = DirectoryStats { path, instance_id, ..DirectoryStats::default() };
        match files.directory_location() {
            Ok(DirectoryLocation::Moved { path: now }) => {
                DirectoryStats { is_moved: true, path_now: now, ..stats }
            }
            Ok(DirectoryLocation::Removed) => DirectoryStats { is_removed: true, ..stats },
            // A directory that cannot be checked fails in the next call that needs it.
            Ok(DirectoryLocation::Unchanged) | Err(_) => stats,
        }
    }

    pub(crate) fn of_store(store: &Store) -> DirectoryStats {
        DirectoryStats::new(&*store.options.env.files, &store.folder, store.instance)
    }
}

impl fmt::Display for DirectoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_removed {
            return writeln!(f, "directory: {} was REMOVED", self.path.display());
        }
        if !self.is_moved {
            return Ok(());
        }
        write!(f, "directory: the path {} leads elsewhere now", self.path.display())?;
        match &self.path_now {
            Some(now) => writeln!(f, "; this store is in {}", now.display()),
            None => writeln!(f),
        }
    }
}
