//! The exclusive lock of a store's folder: `flock` against other processes, a registry against
//! other handles of this one.
//!
//! `flock` alone would do on a local disk. Network file systems turn it into a lock of the whole
//! process, which a second handle gets without a word and gives up by closing: hence the registry,
//! asked before the file is even opened.
//!
//! A store is the directory and the lock file by device and inode, whatever path leads there. A
//! forked child has a registry of its own, and a copy of a lock that does nothing: it neither
//! unlocks what the parent holds nor keeps it locked when the parent has ended.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use umbel_base::{Error, Result};

use super::files::careful_options;
use super::inherited::{self, Entry};
use crate::file::{Access, Lock};
use crate::process::{PerProcess, ProcessBound};

/// A directory or a lock file, by device and inode.
type Identity = (u64, u64);

/// The directories and lock files of every lock that this process holds.
static HELD: PerProcess<Mutex<BTreeSet<Identity>>> = PerProcess::new();

fn held() -> MutexGuard<'static, BTreeSet<Identity>> {
    // The set is whole between any two statements, so a panic elsewhere does not spoil it.
    HELD.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// A held lock.
#[derive(Debug)]
pub(super) struct SystemLock {
    _file: LockedFile,
    /// The folder, locked too where the system can do that: whoever deletes the file and makes a
    /// new one does not get in beside its owner.
    _folder: Option<LockedFile>,
    _registrations: [ProcessBound<Registration>; 2],
}

impl Lock for SystemLock {}

/// An open file with the lock on it.
#[derive(Debug)]
struct LockedFile {
    file: ProcessBound<fs::File>,
    in_children: &'static Entry,
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if !self.file.process().is_current() {
            // The parent holds the lock, and the fork has closed the copy of the file: another one
            // may have its number by now.
            return;
        }
        // Closing would do, were it not for a child that another thread forks at this moment: until
        // it runs its program it holds the file open, and with it the lock.
        let _ = flock(&*self.file, FlockOperation::Unlock);
        self.in_children.forget();
    }
}

impl LockedFile {
    fn take(file: fs::File) -> std::result::Result<LockedFile, Errno> {
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::INTR) => {}
                Ok(()) => break,
                Err(error) => return Err(error),
            }
        }
        let in_children = inherited::close_in_children(&file);
        Ok(LockedFile { file: ProcessBound::new(file), in_children })
    }
}

/// A line in the registry of the process that made it.
#[derive(Debug)]
struct Registration(Identity);

impl Registration {
    /// `None` where there is one already.
    fn new(identity: Identity) -> Option<ProcessBound<Registration>> {
        held().insert(identity).then(|| ProcessBound::new(Registration(identity)))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        held().remove(&self.0);
    }
}

impl SystemLock {
    /// Takes the lock of the file at `path`, creating the file where missing.
    pub(super) fn take(path: &Path) -> Result<SystemLock> {
        let failed = |error: io::Error| Error::io("lock", path, error);
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if path.file_name().is_none() {
            return Err(failed(io::Error::other("the path does not name a file")));
        }
        let is_locked = || Error::Locked(directory.to_path_buf());
        let folder_identity = identity(&fs::metadata(directory).map_err(failed)?);
        let folder_line = Registration::new(folder_identity).ok_or_else(is_locked)?;
        // Before it is opened, because closing it could give up the lock of another handle.
        if fs::symlink_metadata(path).is_ok_and(|file| held().contains(&identity(&file))) {
            return Err(is_locked());
        }
        let mut options = careful_options(Access::ReadWrite);
        let file = options.create(true).truncate(false).open(path).map_err(failed)?;
        let file_identity = identity(&file.metadata().map_err(failed)?);
        let file_line = Registration::new(file_identity).ok_or_else(is_locked)?;
        let file = match LockedFile::take(file) {
            Ok(locked) => locked,
            Err(Errno::WOULDBLOCK) => return Err(is_locked()),
            Err(error) => return Err(failed(error.into())),
        };
        // Not every system opens folders or locks them; the file is what counts there.
        let folder = match fs::File::open(directory).map(LockedFile::take) {
            Ok(Ok(locked)) => Some(locked),
            Ok(Err(Errno::WOULDBLOCK)) => return Err(is_locked()),
            Ok(Err(_)) | Err(_) => None,
        };
        let registrations = [file_line, folder_line];
        Ok(SystemLock { _file: file, _folder: folder, _registrations: registrations })
    }
}
