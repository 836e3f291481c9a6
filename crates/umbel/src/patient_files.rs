//! [`PatientFiles`]: the files of a store, patient where there is no descriptor left, and changed
//! only while they are the store's.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, DirectoryEntry, File, FileSystem};

use crate::descriptors::Descriptors;
use crate::version::Ownership;

/// A file system that makes room in the pool where a call finds no descriptor left.
#[derive(Debug)]
pub struct PatientFiles {
    files: Arc<dyn FileSystem>,
    pool: Arc<Descriptors>,
    /// Names are changed only while they are the store's.
    ownership: Arc<Ownership>,
}

impl PatientFiles {
    /// `files` of the directory of `ownership`, with the descriptors of `pool` to fall back on.
    pub fn new(
        files: Arc<dyn FileSystem>,
        pool: Arc<Descriptors>,
        ownership: Arc<Ownership>,
    ) -> PatientFiles {
        PatientFiles { files, pool, ownership }
    }
}

impl FileSystem for PatientFiles {
    umbel_env::pass_on! {
        files: absolute reaches place identity innermost create_dir_all hard_link remove_dir
            exists resolved lock pin
    }

    fn hold(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let files = self.pool.with_room(|| self.files.hold(path))?;
        let (pool, ownership) = (Arc::clone(&self.pool), Arc::clone(&self.ownership));
        Ok(Arc::new(PatientFiles::new(files, pool, ownership)))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.pool.with_room(|| self.files.create(path))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.pool.with_room(|| self.files.open(path, access))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.ownership.check()?;
        self.files.rename(source, target)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.ownership.check()?;
        self.files.remove_file(path)
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
