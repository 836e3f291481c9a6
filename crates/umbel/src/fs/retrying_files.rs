//! [`RetryingFiles`]: file system of a store that retries calls that find no free descriptor.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, DirectoryEntry, File, FileSystem};

use crate::fs::file_cache::FileCache;

/// File system that closes cached files when a call finds no free descriptor, and retries the call.
#[derive(Debug)]
pub struct RetryingFiles {
    files: Arc<dyn FileSystem>,
    cache: Arc<FileCache>,
}

impl RetryingFiles {
    /// Wraps `files`; when descriptors run out, the files of `pool` are closed.
    pub fn new(files: Arc<dyn FileSystem>, pool: Arc<FileCache>) -> RetryingFiles {
        RetryingFiles { files, cache: pool }
    }
}

impl FileSystem for RetryingFiles {
    umbel_env::delegate_calls! {
        files: absolute reaches directory_location is_removed check_named identity innermost
            create_dir_all rename exchange hard_link remove_file remove_dir exists check_writable
            resolved lock pin
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let files = self.cache.retry_without_descriptors(|| self.files.open_directory(path))?;
        Ok(Arc::new(RetryingFiles::new(files, Arc::clone(&self.cache))))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.cache.retry_without_descriptors(|| self.files.create(path))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.cache.retry_without_descriptors(|| self.files.open(path, access))
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.cache.retry_without_descriptors(|| self.files.read_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let synced = self.cache.retry_without_descriptors(|| self.files.sync_dir(path));
        // Names of other files may be lost with it, whatever the reason: freeing disk space and
        // retrying is no remedy.
        synced.map_err(Error::without_disk_full)
    }
}
