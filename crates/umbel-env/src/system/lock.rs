//! The exclusive lock of a store's folder: `flock` against other processes, a registry against
//! other handles of this one.
//!
//! `flock` alone would do on a local disk. Network file systems turn it into a lock of the whole
//! process, which a second handle gets without a word and gives up by closing: hence the registry,
//! asked before the file is even opened.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use umbel_base::{Error, Result};

use super::files::careful_options;
use crate::file::{Access, Lock};

/// Every lock file this process holds, by its canonical path.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // The set is whole between any two statements, so a panic elsewhere does not spoil it.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A held lock.
#[derive(Debug)]
pub(super) struct SystemLock {
    file: fs::File,
    /// The folder, locked too where the system can do that: whoever deletes the file and makes a
    /// new one does not get in beside its owner.
    folder: Option<fs::File>,
    _registration: Registration,
}

impl Lock for SystemLock {}

impl Drop for SystemLock {
    fn drop(&mut self) {
        // Closing would do, were it not for a child that another thread forks at this moment: until
        // it runs its program it holds the file open, and with it the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
        if let Some(folder) = &self.folder {
            let _ = flock(folder, FlockOperation::Unlock);
        }
    }
}

/// A line in the registry.
#[derive(Debug)]
struct Registration(PathBuf);

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
        let name = path
            .file_name()
            .ok_or_else(|| failed(io::Error::other("the path does not name a file")))?;
        let registered = fs::canonicalize(directory).map_err(failed)?.join(name);
        if !held().insert(registered.clone()) {
            return Err(Error::Locked(directory.to_path_buf()));
        }
        let registration = Registration(registered);
        let mut options = careful_options(Access::ReadWrite);
        let file = options.create(true).truncate(false).open(path).map_err(failed)?;
        match take(&file) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Error::Locked(directory.to_path_buf())),
            Err(error) => return Err(failed(error.into())),
        }
        let mut lock = SystemLock { file, folder: None, _registration: registration };
        // Not every system opens folders or locks them; the file is what counts there.
        if let Ok(folder) = fs::File::open(directory) {
            match take(&folder) {
                Ok(()) => lock.folder = Some(folder),
                Err(Errno::WOULDBLOCK) => return Err(Error::Locked(directory.to_path_buf())),
                Err(_) => {}
            }
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
