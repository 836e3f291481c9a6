//! [`Ownership`]: whether the directory still holds what this handle wrote last.
//!
//! `CURRENT` and the manifest show that: nothing but the handle that holds the lock changes them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_base::{Error, Result};
use umbel_env::{Access, File, FileIdentity, FileSystem, OwnershipCheck, RootFile};

use crate::names;

/// Bytes at the end of the manifest that are compared.
const TAIL_BYTES: u64 = 32;

/// A manifest as this handle wrote it.
#[derive(Debug)]
pub struct ManifestEnd {
    path: PathBuf,
    file: Arc<dyn File>,
    identity: FileIdentity,
    end: u64,
    tail: Vec<u8>,
}

impl ManifestEnd {
    /// A manifest that ends at `end`.
    pub fn of(path: PathBuf, file: Arc<dyn File>, end: u64) -> Result<ManifestEnd> {
        let (identity, tail) = (file.identity()?, tail(&*file, end)?);
        Ok(ManifestEnd { path, file, identity, end, tail })
    }

    /// An error where the manifest is another one.
    fn check(&self, files: &dyn FileSystem, is_appending: bool) -> Result<()> {
        let replaced =
            |reason: &str| Err(Error::Replaced { path: self.path.clone(), reason: reason.into() });
        match files.identity(&self.path)? {
            None => return replaced("it was removed"),
            Some(found) if found != self.identity => return replaced("another file has its name"),
            Some(_) if is_appending => return Ok(()),
            Some(_) => {}
        }
        if self.file.len()? != self.end || tail(&*self.file, self.end)? != self.tail {
            return replaced("its length or its last record has changed");
        }
        Ok(())
    }
}

fn tail(manifest: &dyn File, end: u64) -> Result<Vec<u8>> {
    let start = end.saturating_sub(TAIL_BYTES);
    let mut bytes = vec![0; (end - start) as usize];
    let read = manifest.read_at(&mut bytes, start)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Whether the directory still holds what its writer wrote last. Of a store that is only read,
/// nothing is known.
#[derive(Debug)]
pub struct Ownership {
    /// Held at the directory.
    files: Arc<dyn FileSystem>,
    directory: PathBuf,
    current: RootFile,
    manifest: Mutex<ManifestState>,
}

/// What is known of the manifest.
#[derive(Debug, Clone, Default)]
struct ManifestState {
    /// As it was written last; `None` until this handle wrote one.
    end: Option<Arc<ManifestEnd>>,
    /// Whether a record is being appended, so that its end is not known.
    is_appending: bool,
}

impl ManifestState {
    fn is(&self, other: &ManifestState) -> bool {
        let same = |a: &Arc<ManifestEnd>, b: &Arc<ManifestEnd>| Arc::ptr_eq(a, b);
        let is_same = match (&self.end, &other.end) {
            (Some(one), Some(other)) => same(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same && self.is_appending == other.is_appending
    }
}

impl Ownership {
    /// Of a directory in which nothing was written yet. REQUIRES: `files` are held at it.
    pub fn new(files: Arc<dyn FileSystem>, directory: &Path) -> Ownership {
        let current = RootFile::new(Arc::clone(&files), directory.join(names::CURRENT));
        Ownership { files, directory: directory.to_path_buf(), current, manifest: Mutex::default() }
    }

    fn manifest(&self) -> MutexGuard<'_, ManifestState> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the `CURRENT` that a writer finds when it opens the store, if there is one.
    pub fn note_found(&self) -> Result<()> {
        let path = self.directory.join(names::CURRENT);
        match self.files.open(&path, Access::Read) {
            Ok(file) => self.current.note_found(file),
            Err(error) if error.is_missing_file() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Says that a record is about to be appended to the manifest. An error where the directory
    /// holds something else than was written last.
    pub fn begin_append(&self) -> Result<()> {
        self.check()?;
        self.manifest().is_appending = true;
        Ok(())
    }

    /// Says where the manifest ends after an append, or as it was before.
    pub fn end_append(&self, manifest: ManifestEnd) {
        *self.manifest() = ManifestState { end: Some(Arc::new(manifest)), is_appending: false };
    }

    /// Puts `file`, which [`Current::prepare`] made, in the place of `CURRENT`, and makes it
    /// durable. It names `manifest`. After a failed call `CURRENT` is the old or the new one.
    ///
    /// # Errors
    /// `Replaced`, with nothing changed, where the directory holds something else than was written
    /// last.
    pub fn replace_current(
        &self,
        files: &dyn FileSystem,
        file: Arc<dyn File>,
        manifest: ManifestEnd,
    ) -> Result<()> {
        self.check()?;
        let new = self.directory.join(names::CURRENT_NEW);
        self.current.replace(files, &new, file)?;
        // The former one may have this name now. What stays is removed before the next is made.
        let _ = files.remove_file(&new);
        self.end_append(manifest);
        Ok(())
    }

    /// An error where the directory holds something else than was written last. A failure to look
    /// proves nothing.
    pub fn check(&self) -> Result<()> {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::OwnershipIgnored.is_on() {
            return Ok(());
        }
        loop {
            let known = self.manifest().clone();
            let checked = self.current.check().and_then(|()| match &known.end {
                Some(manifest) => manifest.check(&*self.files, known.is_appending),
                None => Ok(()),
            });
            match checked {
                // The manifest was written meanwhile.
                Err(Error::Replaced { .. }) if !known.is(&self.manifest()) => {}
                Err(replaced @ Error::Replaced { .. }) => return Err(replaced),
                Ok(()) | Err(_) => return Ok(()),
            }
        }
    }
}

impl OwnershipCheck for Ownership {
    fn check(&self) -> Result<()> {
        Ownership::check(self)
    }
}
