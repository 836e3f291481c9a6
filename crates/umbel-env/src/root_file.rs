//! [`RootFile`]: the file of a directory that names all others, such as `CURRENT`. Its writer
//! replaces it as a whole.
//!
//! A program other than Umbel can put another root file into the directory of an open store: a
//! backup restored into it, a tool that synchronizes directories. From then on the names in the
//! directory stand for files of another state, and this writer must not write over them or remove
//! them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_base::{Error, Result};

use crate::file::{File, FileIdentity, FileSystem};
use crate::own_files::OwnershipCheck;

/// Bytes at the end of a version that are compared. A checksum is among them.
const TAIL_BYTES: u64 = 64;

/// The root file as its writer wrote or found it. It is open, so that no other file gets its
/// identity.
#[derive(Debug, Clone)]
struct Version {
    file: Arc<dyn File>,
    identity: FileIdentity,
    bytes: u64,
    tail: Vec<u8>,
}

impl Version {
    fn of(file: Arc<dyn File>) -> Result<Version> {
        let (identity, bytes) = (file.identity()?, file.len()?);
        let tail = tail(&*file, bytes)?;
        Ok(Version { file, identity, bytes, tail })
    }

    /// Whether the bytes of the file are the same.
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
pub struct RootFile {
    /// Held at the directory.
    files: Arc<dyn FileSystem>,
    path: PathBuf,
    versions: Mutex<Versions>,
}

#[derive(Debug, Default)]
struct Versions {
    /// What was found or written last; `None` where there is no root file yet.
    last: Option<Version>,
    /// What is being put in its place. After a failed call the one or the other is there.
    next: Option<Version>,
    /// Counts the changes of the two.
    changes: u64,
}

impl Versions {
    fn set(&mut self, last: Option<Version>, next: Option<Version>) {
        *self = Versions { last, next, changes: self.changes + 1 };
    }
}

impl RootFile {
    /// The root file at `path`, of which nothing is known yet. REQUIRES: `files` are held at its
    /// directory.
    pub fn new(files: Arc<dyn FileSystem>, path: PathBuf) -> RootFile {
        RootFile { files, path, versions: Mutex::default() }
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the root file that the writer found when it opened the directory.
    pub fn note_found(&self, file: Arc<dyn File>) -> Result<()> {
        let found = Version::of(file)?;
        self.versions().set(Some(found), None);
        Ok(())
    }

    /// An error where the file with the root file's name is none that this writer found or wrote.
    pub fn check(&self) -> Result<()> {
        self.find(&self.path).map(drop)
    }

    /// The version that is at a path; `None` where the writer knows none yet.
    fn find(&self, at: &Path) -> Result<Option<Version>> {
        loop {
            let before = self.versions().changes;
            match self.find_once(at) {
                // Another thread replaced the file between the look at it and at what is known.
                Err(Error::Replaced { .. }) if self.versions().changes != before => {}
                found => return found,
            }
        }
    }

    fn find_once(&self, at: &Path) -> Result<Option<Version>> {
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
                self.files.check_kept(self.path.parent().unwrap_or(&self.path))?;
                "it was removed"
            }
        };
        Err(Error::Replaced { path: self.path.clone(), reason: reason.into() })
    }

    /// Gives a new file, which is at the path `new` and durable, the root file's name, and makes
    /// that durable with every name of the directory. `files` are those of the directory.
    ///
    /// The file that had the name stays under the other one and keeps room on the disk: the writer
    /// removes it before it makes the next root file.
    ///
    /// The two exchange their names, and the one that came out is checked once more: one that an
    /// operator put there after the first check is put back. Where the file system cannot exchange
    /// names, there is the time of one system call in which that is not noticed.
    ///
    /// # Errors
    /// `Replaced`, with the file there left as it was, where it is none that this writer found or
    /// wrote; a failed call, after which the one file or the other has the name.
    pub fn replace(&self, files: &dyn FileSystem, new: &Path, file: Arc<dyn File>) -> Result<()> {
        let next = Version::of(file)?;
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

impl OwnershipCheck for RootFile {
    fn check(&self) -> Result<()> {
        RootFile::check(self)
    }
}
