//! [`ForkGuardedFiles`]: a file system through which a forked child cannot change files.
//!
//! It is the last line of defence of a store's handle. A change that the code above fails to
//! prevent, such as a table's removal with its last reader, fails with an error.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};

use crate::file_system::{Access, File, FileSystem, Lock, Pin};
use crate::process::ProcessMark;

/// The files of a handle that belongs to one process.
#[derive(Debug)]
pub(crate) struct ForkGuardedFiles {
    files: Arc<dyn FileSystem>,
    process: ProcessMark,
}

impl ForkGuardedFiles {
    /// Wraps `files` for this process.
    pub(crate) fn new(files: Arc<dyn FileSystem>) -> ForkGuardedFiles {
        ForkGuardedFiles { files, process: ProcessMark::current() }
    }

    fn check(&self, path: &Path) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked(path.to_path_buf())) }
    }
}

impl FileSystem for ForkGuardedFiles {
    crate::delegate_calls! {
        files: absolute reaches directory_location is_removed check_named identity innermost
            read_dir exists check_writable resolved
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        self.check(path)?;
        let (files, process) = (self.files.open_directory(path)?, self.process);
        Ok(Arc::new(ForkGuardedFiles { files, process }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.check(path)?;
        self.files.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.check(path)?;
        self.files.create(path)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.check(path)?;
        self.files.open(path, access)
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.check(source)?;
        self.files.rename(source, target)
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        self.check(one)?;
        self.files.exchange(one, other)
    }

    fn hard_link(&self, source: &Path, target_files: &dyn FileSystem, target: &Path) -> Result<()> {
        self.check(source)?;
        self.files.hard_link(source, target_files, target)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.check(path)?;
        self.files.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.check(path)?;
        self.files.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.check(path)?;
        self.files.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.check(path)?;
        self.files.lock(path)
    }

    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>> {
        self.check(path)?;
        self.files.pin(path, version)
    }
}
