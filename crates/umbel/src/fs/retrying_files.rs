//! [`PatientFiles`]: the files of a store, patient where there is no descriptor left.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, DirectoryEntry, File, FileSystem};

use crate::descriptors::Descriptors;

/// A file system that makes room in the pool where a call finds no descriptor left.
#[derive(Debug)]
pub struct PatientFiles {
    files: Arc<dyn FileSystem>,
    pool: Arc<Descriptors>,
}

impl PatientFiles {
    /// `files`, with the descriptors of `pool` to fall back on.
    pub fn new(files: Arc<dyn FileSystem>, pool: Arc<Descriptors>) -> PatientFiles {
        PatientFiles { files, pool }
    }
}

impl FileSystem for PatientFiles {
    umbel_env::pass_on! {
        files: absolute reaches place is_removed check_named identity innermost create_dir_all
            rename exchange hard_link remove_file remove_dir exists resolved lock pin
    }

    fn hold(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let files = self.pool.with_room(|| self.files.hold(path))?;
        Ok(Arc::new(PatientFiles::new(files, Arc::clone(&self.pool))))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.pool.with_room(|| self.files.create(path))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.pool.with_room(|| self.files.open(path, access))
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.pool.with_room(|| self.files.read_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let synced = self.pool.with_room(|| self.files.sync_dir(path));
        synced.map_err(|error| match error {
            // Names of others may be lost with it, whatever the reason: no room is to be made and
            // waited for.
            Error::Full { operation, path, source } => Error::Io { operation, path, source },
            other => other,
        })
    }
}
