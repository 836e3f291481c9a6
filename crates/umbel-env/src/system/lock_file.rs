//! The exclusive lock of a store's directory: `flock` excludes other processes, and a registry
//! excludes other handles of this process.
//!
//! `flock` alone would suffice on a local disk. Network file systems turn it into a lock of the
//! whole process. A second handle of the process would get such a lock without an error, and would
//! release it by closing the file. So a registry is checked before the lock file is opened. Network
//! file systems cannot lock directories: on them, a lock file that is removed and created again is
//! a second lock.
//!
//! A store is identified by device and inode of its directory and lock file, so the path does not
//! matter. A forked child has a registry of its own. The child's copy of its parent's lock neither
//! releases that lock nor keeps it after the parent has ended.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use rustix::fs::{FlockOperation, OFlags, flock, fstat};
use rustix::io::Errno;
use umbel_base::{Error, Result};

use crate::file_system::{Access, FileIdentity, Lock};
use crate::process::{ProcessLocal, ProcessOwned};
use crate::system::close_on_fork::{self, ForkEntry};
use crate::system::open_directory::{self, Location};
use crate::system::open_file::open_file;
use crate::system::reader_pin;

/// The directories and lock files of every lock that this process holds.
static REGISTRY: ProcessLocal<Mutex<BTreeSet<FileIdentity>>> = ProcessLocal::new();

fn registry() -> MutexGuard<'static, BTreeSet<FileIdentity>> {
    // The set is whole between any two statements, so a panic elsewhere does not spoil it.
    REGISTRY.get().lock().ignore_poison()
}

/// Lock that a thread holds while it releases a store's lock. Between the close of a file and the
/// removal of its registration, a new file can get the same identity.
static RELEASING: ProcessLocal<Mutex<()>> = ProcessLocal::new();

fn releasing() -> MutexGuard<'static, ()> {
    RELEASING.get().lock().ignore_poison()
}

/// A lock of a store's directory.
#[derive(Debug)]
pub(super) struct SystemLock {
    /// The lock's files; `None` after the release.
    held: Option<HeldLock>,
}

/// The files of a lock, and their registrations.
#[derive(Debug)]
struct HeldLock {
    file: LockedFile,
    /// The directory, which is locked, too, if the system supports it. So a process that deletes
    /// the lock file and creates a new one does not get a second lock.
    _directory: Option<LockedFile>,
    _registrations: [ProcessOwned<Registration>; 2],
}

impl Lock for SystemLock {
    fn is_pinned(&self, through: u64) -> Result<bool> {
        let held = self.held.as_ref();
        Ok(held.is_some_and(|held| reader_pin::is_pinned(&held.file.file, through)))
    }
}

impl Drop for SystemLock {
    fn drop(&mut self) {
        let _releasing = releasing();
        self.held = None;
    }
}

/// An open file with the lock on it.
#[derive(Debug)]
struct LockedFile {
    file: ProcessOwned<fs::File>,
    fork_entry: &'static ForkEntry,
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if !self.file.process().is_current() {
            // The parent holds the lock, and the fork has closed the copy of the file: another one
            // may have its number by now.
            return;
        }
        // A close would suffice without a concurrent fork. Until the forked child
        // runs its program it holds the file open, and with it the lock.
        let _ = flock(&*self.file, FlockOperation::Unlock);
        self.fork_entry.unregister();
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
        let in_children = close_on_fork::close_in_children(&file);
        Ok(LockedFile { file: ProcessOwned::new(file), fork_entry: in_children })
    }
}

/// An entry in the registry of the process that created it.
#[derive(Debug)]
struct Registration(FileIdentity);

impl Registration {
    /// Adds an entry to the registry; returns `None` if the identity is registered already.
    fn new(identity: FileIdentity) -> Option<ProcessOwned<Registration>> {
        registry().insert(identity).then(|| ProcessOwned::new(Registration(identity)))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        registry().remove(&self.0);
    }
}

impl SystemLock {
    /// Takes the lock of the file at a location, which is created if it is missing. `path` is the
    /// path in errors.
    pub(super) fn take(location: &Location, path: &Path) -> Result<SystemLock> {
        let held = match HeldLock::take(location, path) {
            Err(Error::Locked(_)) => {
                // The registration may be that of another file, which is closed.
                let _none_is_being_released = releasing();
                HeldLock::take(location, path)
            }
            taken => taken,
        };
        held.map(|held| SystemLock { held: Some(held) })
    }
}

impl HeldLock {
    fn take(location: &Location, path: &Path) -> Result<HeldLock> {
        let failed = |error: io::Error| Error::io("lock", path, error);
        let is_locked = || Error::Locked(path.parent().unwrap_or(path).to_path_buf());
        let directory = open_directory::open_parent(location).map_err(failed)?;
        let stat = open_directory::retry_on_interrupt(|| fstat(&directory)).map_err(failed)?;
        let directory_line =
            Registration::new(open_directory::identity(&stat)).ok_or_else(is_locked)?;
        // Before it is opened, because closing it could give up the lock of another handle.
        if location.stat().is_ok_and(|file| registry().contains(&open_directory::identity(&file))) {
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
        let stat = open_directory::retry_on_interrupt(|| fstat(&file)).map_err(failed)?;
        let file_line = Registration::new(open_directory::identity(&stat)).ok_or_else(is_locked)?;
        let file = match LockedFile::take(file) {
            Ok(locked) => locked,
            Err(Errno::WOULDBLOCK) => return Err(is_locked()),
            Err(error) => return Err(failed(error.into())),
        };
        let registrations = [file_line, directory_line];
        Ok(HeldLock { file, _directory: directory, _registrations: registrations })
    }
}
