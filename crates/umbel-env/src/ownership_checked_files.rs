//! [`OwnershipCheckedFiles`]: the files of a directory that has one writer, through which the
//! writer changes only files that it owns.
//!
//! Another program can put a file under a name of an open store, or another state of the store into
//! its directory. The writer owns the files that it created or found when it opened the directory.
//! The writer owns a file as long as the file's name leads to the same file and the directory holds
//! the same state. The comparison and the change are two calls, since no system call removes a name
//! only if it is that of a certain file.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use crate::file_system::{Access, DirectoryEntry, File, FileIdentity, FileSystem};

/// Whether a directory still holds the last state of its writer.
pub trait OwnershipCheck: Send + Sync + Debug {
    /// Returns [`Error::Replaced`] if the directory does not hold the last state of its writer.
    /// Every other error says only that the check was not possible.
    fn check(&self) -> Result<()>;
}

/// The files of a directory that has one writer.
#[derive(Debug)]
pub struct OwnershipCheckedFiles {
    files: Arc<dyn FileSystem>,
    ownership: Arc<dyn OwnershipCheck>,
    hasher: RandomState,
    /// Identity of each created or listed file, by the hash of its path, since many paths would
    /// take much memory. If two paths have the same hash, the file of the first path cannot be
    /// removed and stays.
    identities: Mutex<HashMap<u64, FileIdentity>>,
}

impl OwnershipCheckedFiles {
    /// REQUIRES: `files` are held at the directory. A file in it is removed or renamed only after
    /// it was created or its directory listed through this.
    pub fn new(
        files: Arc<dyn FileSystem>,
        ownership: Arc<dyn OwnershipCheck>,
    ) -> OwnershipCheckedFiles {
        OwnershipCheckedFiles {
            files,
            ownership,
            hasher: RandomState::new(),
            identities: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, FileIdentity>> {
        self.identities.lock().ignore_poison()
    }

    fn key(&self, path: &Path) -> u64 {
        self.hasher.hash_one(path)
    }

    /// Notes which file a name leads to, if any, and returns the file noted before.
    fn note(&self, path: &Path, file: Option<FileIdentity>) -> Option<FileIdentity> {
        let key = self.key(path);
        match file {
            Some(file) => self.known().insert(key, file),
            None => self.known().remove(&key),
        }
    }

    /// Returns an error if the file `found` under this name is not owned by the writer.
    fn check_file(&self, path: &Path, found: FileIdentity) -> Result<()> {
        let known = self.known().get(&self.key(path)).copied();
        // A file of a lower layer of an overlay gets another device when it is copied up.
        if known.is_some_and(|known| known == found || known.device != found.device) {
            return Ok(());
        }
        let reason = "another program put this file there".into();
        Err(Error::Replaced { path: path.to_path_buf(), reason })
    }

    /// Returns an error if a name must not be removed or replaced: the writer does not own its
    /// file, or the directory holds another state of the store. If the check itself fails, no error
    /// is returned.
    fn check_change(&self, path: &Path) -> Result<()> {
        let looked = self.ownership.check().and_then(|()| self.files.identity(path));
        match looked {
            Ok(Some(found)) => self.check_file(path, found),
            Err(replaced @ Error::Replaced { .. }) => Err(replaced),
            Ok(None) | Err(_) => Ok(()),
        }
    }
}

impl FileSystem for OwnershipCheckedFiles {
    crate::delegate_calls! {
        files: absolute reaches directory_location is_removed identity innermost create_dir_all
            hard_link remove_dir exists check_writable resolved sync_dir lock pin
    }

    /// Returns the subdirectory's files without ownership checks, since a store in a subdirectory
    /// checks its own files.
    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        self.files.open_directory(path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.files.create(path)?;
        let identity = file.identity().inspect_err(|_| {
            // One that is not known can never be removed through this. The first failure counts.
            let _ = self.files.remove_file(path);
        })?;
        self.note(path, Some(identity));
        Ok(file)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let file = self.files.open(path, access)?;
        if access == Access::ReadWrite
            && let Ok(found) = file.identity()
        {
            self.check_file(path, found)?;
        }
        Ok(file)
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.check_change(source)?;
        self.files.rename(source, target)?;
        let file = self.note(source, None);
        self.note(target, file);
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        let done = self.files.exchange(one, other)?;
        if done {
            let file = self.note(one, None);
            let exchanged = self.note(other, file);
            self.note(one, exchanged);
        }
        Ok(done)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.check_change(path)?;
        self.files.remove_file(path)?;
        self.note(path, None);
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let entries = self.files.read_dir(path)?;
        for entry in entries.iter().filter(|entry| !entry.is_directory) {
            let key = self.key(&path.join(&entry.name));
            self.known().entry(key).or_insert(entry.identity);
        }
        Ok(entries)
    }

    fn check_named(&self, path: &Path) -> Result<()> {
        match self.files.identity(path) {
            Ok(Some(found)) => self.check_file(path, found),
            Ok(None) => {
                self.files.check_directory(path.parent().unwrap_or(path))?;
                let reason = "it was removed".into();
                Err(Error::Replaced { path: path.to_path_buf(), reason })
            }
            // A failure to look proves nothing.
            Err(_) => Ok(()),
        }
    }
}
