//! [`Ownership`]: whether the directory still holds what this handle wrote last.
//!
//! A program other than Umbel can put other files into the directory of an open store: a backup
//! restored into it, a tool that synchronizes directories. From then on the names stand for files
//! of another state, and this handle must not write over them or remove them. `CURRENT` and the
//! manifest show that: nothing but the handle that holds the lock changes them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use umbel_base::{Error, Result};
use umbel_env::{DirectoryPlace, File, FileIdentity, FileSystem};

use super::current::Current;
use crate::names;

/// Bytes at the end of the manifest that are compared.
const TAIL_BYTES: u64 = 32;

/// What this handle wrote last.
#[derive(Debug)]
pub struct Written {
    current: Current,
    manifest: Arc<dyn File>,
    identity: Option<FileIdentity>,
    end: u64,
    tail: Vec<u8>,
}

impl Written {
    /// Notes that `CURRENT` names this manifest, which ends at `end`.
    pub fn note(current: Current, manifest: Arc<dyn File>, end: u64) -> Result<Written> {
        let (identity, tail) = (manifest.identity()?, tail(&*manifest, end)?);
        Ok(Written { current, manifest, identity, end, tail })
    }
}

fn tail(manifest: &dyn File, end: u64) -> Result<Vec<u8>> {
    let start = end.saturating_sub(TAIL_BYTES);
    let mut bytes = vec![0; (end - start) as usize];
    let read = manifest.read_at(&mut bytes, start)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// What a handle wrote last. A store that is being opened, or only read, has written nothing.
#[derive(Debug)]
pub struct Ownership {
    /// Held at the directory.
    files: Arc<dyn FileSystem>,
    directory: PathBuf,
    written: Mutex<Option<Written>>,
}

impl Ownership {
    /// Of a directory in which nothing was written yet. REQUIRES: `files` are held at it.
    pub fn new(files: Arc<dyn FileSystem>, directory: &Path) -> Ownership {
        Ownership { files, directory: directory.to_path_buf(), written: Mutex::default() }
    }

    /// What was written last, held while `CURRENT` or the manifest is changed. An error where the
    /// directory holds something else. A failure to look proves nothing and is left to the change.
    pub fn own(&self) -> Result<MutexGuard<'_, Option<Written>>> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let found = written.as_ref().map_or(Ok(()), |last| self.compare(last));
        match found {
            Err(replaced @ Error::Replaced { .. }) => Err(replaced),
            Ok(()) | Err(_) => Ok(written),
        }
    }

    /// An error where the directory holds something else than was written last. While the manifest
    /// is being changed this was checked just before.
    pub fn check(&self) -> Result<()> {
        let written = match self.written.try_lock() {
            Ok(written) => written,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        match &*written {
            Some(written) => self.compare(written),
            None => Ok(()),
        }
    }

    /// An error where the directory holds something else than `written`.
    fn compare(&self, written: &Written) -> Result<()> {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::OwnershipIgnored.is_on() {
            return Ok(());
        }
        let (files, directory) = (&*self.files, &*self.directory);
        let replaced =
            |path: PathBuf, reason: &str| Err(Error::Replaced { path, reason: reason.into() });
        if files.place()? == DirectoryPlace::Removed {
            return replaced(directory.to_path_buf(), "the directory was removed");
        }
        let current = directory.join(names::CURRENT);
        match Current::read(files, directory) {
            Ok(Some(found)) if found == written.current => {}
            Ok(Some(_)) => return replaced(current, "it names another state of a store"),
            Ok(None) => return replaced(current, "it was removed"),
            Err(Error::Corruption { reason, .. }) => return replaced(current, &reason),
            Err(error) => return Err(error),
        }
        let manifest = names::manifest(directory, written.current.manifest_id);
        let named = files.identity(&manifest)?;
        if named.is_none() || written.identity.is_none() {
            return replaced(manifest, "it was removed");
        }
        let is_same_file = named == written.identity;
        if !is_same_file || written.manifest.len()? != written.end {
            return replaced(manifest, "another file has its name, or its length has changed");
        }
        if tail(&*written.manifest, written.end)? != written.tail {
            return replaced(manifest, "its last record has changed");
        }
        Ok(())
    }
}
