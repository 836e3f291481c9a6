//! [`AtomicFile`]: the root file of a directory, such as `CURRENT`, from which all other files are
//! found. Its writer replaces the root file as a whole.
//!
//! A program other than Umbel can put another root file into the directory of an open store, for
//! example by a restore or a directory synchronization. From then on the names in the directory are
//! those of files of another state, and this writer must not overwrite or remove these files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use crate::file_system::{File, FileIdentity, FileSystem};
use crate::ownership_checked_files::OwnershipCheck;

/// Number of bytes at the end of a root file that are compared; they include a checksum.
const TAIL_BYTES: u64 = 64;

/// The root file as its writer wrote or found it. The file is kept open, so that no other file gets
/// its identity.
#[derive(Debug, Clone)]
struct FileVersion {
    file: Arc<dyn File>,
    identity: FileIdentity,
    bytes: u64,
    tail: Vec<u8>,
}

impl FileVersion {
    fn of(file: Arc<dyn File>) -> Result<FileVersion> {
        let (identity, bytes) = (file.identity()?, file.len()?);
        let tail = tail(&*file, bytes)?;
        Ok(FileVersion { file, identity, bytes, tail })
    }

    /// Whether the compared bytes of the file are unchanged.
    fn is_unchanged(&self) -> Result<bool> {
        Ok(self.file.len()? == self.bytes && tail(&*self.file, self.bytes)? == self.tail)
    }
}

fn tail(file: &dyn File, end: u64) -> Result<Vec<u8>> {
    let start = end.saturating_sub(TAIL_BYTES);
    let mut bytes = vec![0; (end - start) as usize];
    let read = file.read_at(&mut bytes, start)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The root file of a directory that has one writer.
#[derive(Debug)]
pub struct AtomicFile {
    /// File system that holds the directory open.
    files: Arc<dyn FileSystem>,
    path: PathBuf,
    versions: Mutex<RootVersions>,
}

#[derive(Debug, Default)]
struct RootVersions {
    /// Root file that was last found or written; `None` if there is no root file yet.
    last: Option<FileVersion>,
    /// File that is about to replace the root file. After a failed call either file can have the
    /// root file's name.
    next: Option<FileVersion>,
    /// Number of changes of `last` and `next`.
    changes: u64,
}

impl RootVersions {
    fn set(&mut self, last: Option<FileVersion>, next: Option<FileVersion>) {
        *self = RootVersions { last, next, changes: self.changes + 1 };
    }
}

impl AtomicFile {
    /// Creates the root file at `path`, in an unknown state. REQUIRES: `files` holds its directory
    /// open.
    pub fn new(files: Arc<dyn FileSystem>, path: PathBuf) -> AtomicFile {
        AtomicFile { files, path, versions: Mutex::default() }
    }

    fn versions(&self) -> MutexGuard<'_, RootVersions> {
        self.versions.lock().ignore_poison()
    }

    /// Notes the root file that the writer found when it opened the directory.
    pub fn set_found(&self, file: Arc<dyn File>) -> Result<()> {
        let found = FileVersion::of(file)?;
        self.versions().set(Some(found), None);
        Ok(())
    }

    /// Returns an error if the file with the root file's name is not the one that this writer found
    /// or wrote.
    pub fn check(&self) -> Result<()> {
        self.find(&self.path).map(drop)
    }

    /// Returns the version that is at a path; `None` if the writer has found or written none yet.
    fn find(&self, at: &Path) -> Result<Option<FileVersion>> {
        loop {
            let before = self.versions().changes;
            match self.find_once(at) {
                // Another thread replaced the file between the check and the read of `last`.
                Err(Error::Replaced { .. }) if self.versions().changes != before => {}
                found => return found,
            }
        }
    }

    fn find_once(&self, at: &Path) -> Result<Option<FileVersion>> {
        let found = self.files.identity(at)?;
        let version = {
            let versions = self.versions();
            let Some(last) = &versions.last else { return Ok(None) };
            let mut known = [Some(last), versions.next.as_ref()].into_iter().flatten();
            known.find(|version| Some(version.identity) == found).cloned()
        };
        let reason = match (found, version) {
            (_, Some(version)) if version.is_unchanged()? => return Ok(Some(version)),
            (_, Some(_)) => "its bytes were changed",
            (Some(_), None) => "another file has its name",
            (None, None) => {
                self.files.check_directory(self.path.parent().unwrap_or(&self.path))?;
                "it was removed"
            }
        };
        Err(Error::Replaced { path: self.path.clone(), reason: reason.into() })
    }

    /// Gives the root file's name to a new, durable file at the path `new`, and syncs the directory
    /// `files`.
    ///
    /// The old file keeps its disk space under the name `new`, until the writer removes it before
    /// it writes the next root file.
    ///
    /// The two files exchange their names, and the old file is checked once more. If another
    /// program replaced the root file after the first check, that program's file is put back. If
    /// the file system cannot exchange names, a replacement within one system call is not detected.
    ///
    /// # Errors
    /// `Replaced`, with the file left unchanged, if this writer did not find or write the root
    /// file. After another error either file can have the root file's name.
    pub fn replace(&self, files: &dyn FileSystem, new: &Path, file: Arc<dyn File>) -> Result<()> {
        let next = FileVersion::of(file)?;
        // After a call that failed this may be either.
        let last = self.find(&self.path)?;
        let is_first = last.is_none();
        self.versions().set(last, Some(next.clone()));
        let directory = self.path.parent().unwrap_or(&self.path);
        let exchanged = match is_first {
            true => false,
            // One that was removed since the check cannot be exchanged.
            false => {
                files.exchange(new, &self.path).or_else(|error| self.check().and(Err(error)))?
            }
        };
        if !exchanged {
            files.rename(new, &self.path)?;
        } else if let Err(replaced @ Error::Replaced { .. }) = self.find(new) {
            files.exchange(new, &self.path)?;
            return Err(replaced);
        }
        files.sync_dir(directory)?;
        self.versions().set(Some(next), None);
        Ok(())
    }
}

impl OwnershipCheck for AtomicFile {
    fn check(&self) -> Result<()> {
        AtomicFile::check(self)
    }
}
