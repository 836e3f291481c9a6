//! The exclusive lock of a store's folder: `flock` against other processes, a registry against
//! other handles of this one.
//!
//! `flock` alone would do on a local disk. Network file systems turn it into a lock of the whole
//! process, which a second handle gets without a word and gives up by closing the file: hence the
//! registry, asked before the lock file is opened. They lock no directory, so there a lock file
//! that is removed and created again is a second lock.
//!
//! A store is the directory and the lock file by device and inode, whatever path leads there. A
//! forked child has a registry of its own, and a copy of a lock that does nothing: it neither
//! unlocks what the parent holds nor keeps it locked when the parent has ended.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock, fstat};
use rustix::io::Errno;
use umbel_base::{Error, Result};

use super::directory::{self, Location};
use super::files::open_file;
use super::inherited::{self, Entry};
use super::pin;
use crate::file::{Access, FileIdentity, Lock};
use crate::process::{PerProcess, ProcessBound};

/// The directories and lock files of every lock that this process holds.
static HELD: PerProcess<Mutex<BTreeSet<FileIdentity>>> = PerProcess::new();

fn held() -> MutexGuard<'static, BTreeSet<FileIdentity>> {
    // The set is whole between any two statements, so a panic elsewhere does not spoil it.
    HELD.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A held lock.
#[derive(Debug)]
pub(super) struct SystemLock {
    file: LockedFile,
    /// The directory, locked too where the system can do that: a process that deletes the file and
    /// creates a new one does not get the lock beside its owner.
    _directory: Option<LockedFile>,
    _registrations: [ProcessBound<Registration>; 2],
}

impl Lock for SystemLock {
    fn is_pinned(&self, through: u64) -> Result<bool> {
        Ok(pin::is_pinned(&self.file.file, through))
    }
}

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
struct Registration(FileIdentity);

impl Registration {
    /// `None` where there is one already.
    fn new(identity: FileIdentity) -> Option<ProcessBound<Registration>> {
        held().insert(identity).then(|| ProcessBound::new(Registration(identity)))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        held().remove(&self.0);
    }
}

impl SystemLock {
    /// Takes the lock of the file at a location, creating the file where missing. `path` is what
    /// errors name.
    pub(super) fn take(location: &Location, path: &Path) -> Result<SystemLock> {
        let failed = |error: io::Error| Error::io("lock", path, error);
        let is_locked = || Error::Locked(path.parent().unwrap_or(path).to_path_buf());
        let directory = directory::open_parent(location).map_err(failed)?;
        let stat = directory::uninterrupted(|| fstat(&directory)).map_err(failed)?;
        let directory_line = Registration::new(directory::identity(&stat)).ok_or_else(is_locked)?;
        // Before it is opened, because closing it could give up the lock of another handle.
        if location.stat().is_ok_and(|file| held().contains(&directory::identity(&file))) {
            return Err(is_locked());
        }
        // Not every system locks directories; the file is what counts there. Before the file, so
        // that a process which does not get the lock creates none.
        let directory = match LockedFile::take(directory) {
            Ok(locked) => Some(locked),
            Err(Errno::WOULDBLOCK) => return Err(is_locked()),
            Err(_) => None,
        };
        let file = open_file(location, Access::ReadWrite, OFlags::CREATE).map_err(failed)?;
        let stat = directory::uninterrupted(|| fstat(&file)).map_err(failed)?;
        let file_line = Registration::new(directory::identity(&stat)).ok_or_else(is_locked)?;
        let file = match LockedFile::take(file) {
            Ok(locked) => locked,
            Err(Errno::WOULDBLOCK) => return Err(is_locked()),
            Err(error) => return Err(failed(error.into())),
        };
        let registrations = [file_line, directory_line];
        Ok(SystemLock { file, _directory: directory, _registrations: registrations })
    }
}
