//! Where a store's directory is.

use std::fmt;
use std::path::{Path, PathBuf};

use umbel_env::{DirectoryPlace, FileSystem};

use crate::store::Store;

/// The directory of an open store. The handle keeps the directory it opened, whatever happens to
/// the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryStats {
    /// The path it was opened by, from the root on.
    pub path: PathBuf,
    /// Whether the path leads to something else or to nothing now.
    pub is_moved: bool,
    /// The path of the directory now, where it was moved and the system tells.
    pub path_now: Option<PathBuf>,
    /// Whether the directory was removed. The store is lost with its handle then.
    pub is_removed: bool,
    /// Which copy of the store this is: random, made with the store and with each checkpoint.
    /// `None` in a store of an earlier version that is open for reading only.
    pub instance_id: Option<[u8; 16]>,
}

impl DirectoryStats {
    /// The directory that `files` are held at, which was opened by `path`, of this copy of a store.
    pub fn new(files: &dyn FileSystem, path: &Path, instance_id: Option<[u8; 16]>) -> Self {
        let path = path.to_path_buf();
        let stats = DirectoryStats { path, instance_id, ..DirectoryStats::default() };
        match files.place() {
            Ok(DirectoryPlace::Moved { now }) => {
                DirectoryStats { is_moved: true, path_now: now, ..stats }
            }
            Ok(DirectoryPlace::Removed) => DirectoryStats { is_removed: true, ..stats },
            // A directory that cannot be looked at shows in the next call that needs it.
            Ok(DirectoryPlace::Unchanged) | Err(_) => stats,
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
