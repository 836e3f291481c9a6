//! The exclusive lock of a store's folder: `flock` against other processes, a registry against
//! other handles of this one.
//!
//! `flock` alone would do on a local disk. Network file systems turn it into a lock of the whole
//! process, which a second handle gets without a word and gives up by closing: hence the registry,
//! asked before the file is even opened.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock, fstat};
use rustix::io::Errno;
use umbel_base::{Error, Result};

use super::directory::{self, Location};
use super::files::open_file;
use super::pin;
use crate::file::{Access, FileIdentity, Lock};

/// A lock file: the directory it is in and its name there. The directory's path may change, and
/// more than one path may lead to it.
type LockName = (FileIdentity, OsString);

/// Every lock file this process holds.
static HELD: Mutex<BTreeSet<LockName>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<LockName>> {
    // The set is whole between any two statements, so a panic elsewhere does not spoil it.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A held lock.
#[derive(Debug)]
pub(super) struct SystemLock {
    file: fs::File,
    /// The directory, locked too where the system can do that: a process that deletes the file and
    /// creates a new one does not get the lock beside its owner.
    directory: Option<fs::File>,
    _registration: Registration,
}

impl Lock for SystemLock {
    fn is_pinned(&self, through: u64) -> Result<bool> {
        Ok(pin::is_pinned(&self.file, through))
    }
}

impl Drop for SystemLock {
    fn drop(&mut self) {
        // Closing would do, were it not for a child that another thread forks at this moment: until
        // it runs its program it holds the file open, and with it the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
        if let Some(directory) = &self.directory {
            let _ = flock(directory, FlockOperation::Unlock);
        }
    }
}

/// A line in the registry.
#[derive(Debug)]
struct Registration(LockName);

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
        let locked = || Error::Locked(path.parent().unwrap_or(path).to_path_buf());
        let directory = directory::open_parent(location).map_err(failed)?;
        let stat = directory::uninterrupted(|| fstat(&directory)).map_err(failed)?;
        let name = location.name().file_name().unwrap_or_default().to_os_string();
        let registered = (directory::identity(&stat), name);
        if !held().insert(registered.clone()) {
            return Err(locked());
        }
        let registration = Registration(registered);
        let file = open_file(location, Access::ReadWrite, OFlags::CREATE).map_err(failed)?;
        match take(&file) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(locked()),
            Err(error) => return Err(failed(error.into())),
        }
        let mut lock = SystemLock { file, directory: None, _registration: registration };
        // Not every system locks directories; the file is what counts there.
        match take(&directory) {
            Ok(()) => lock.directory = Some(directory),
            Err(Errno::WOULDBLOCK) => return Err(locked()),
            Err(_) => {}
        }
        Ok(lock)
    }
}

fn take(file: &fs::File) -> std::result::Result<(), Errno> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR) => {}
            taken => return taken,
        }
    }
}
