//! [`StoreOwnership`]: checks that the directory still holds the state that this handle wrote last.
//!
//! The check compares `CURRENT` and the manifest, which only the handle that holds the lock
//! changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::{Access, AtomicFile, File, FileIdentity, FileSystem, OwnershipCheck};

use crate::fs::filenames;

/// Number of bytes at the end of the manifest that the check compares.
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
    /// Returns the end of the manifest at `path`, which ends at offset `end`.
    pub fn of(path: PathBuf, file: Arc<dyn File>, end: u64) -> Result<ManifestEnd> {
        let (identity, tail) = (file.identity()?, tail(&*file, end)?);
        Ok(ManifestEnd { path, file, identity, end, tail })
    }

    /// Returns an error if the manifest at the path is another one.
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

/// Checks that the directory still holds the state that this handle wrote last. In a store opened
/// read-only there is no such state.
#[derive(Debug)]
pub struct StoreOwnership {
    /// File system that holds the store's directory open.
    files: Arc<dyn FileSystem>,
    directory: PathBuf,
    current: AtomicFile,
    manifest: Mutex<AppendState>,
}

/// Knowledge about the end of the manifest.
#[derive(Debug, Clone, Default)]
struct AppendState {
    /// End of the manifest as written last; `None` until this handle has written a manifest.
    end: Option<Arc<ManifestEnd>>,
    /// Whether a record is being appended to the manifest, so that its end is unknown.
    is_appending: bool,
}

impl AppendState {
    fn is(&self, other: &AppendState) -> bool {
        let same = |a: &Arc<ManifestEnd>, b: &Arc<ManifestEnd>| Arc::ptr_eq(a, b);
        let is_same = match (&self.end, &other.end) {
            (Some(one), Some(other)) => same(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same && self.is_appending == other.is_appending
    }
}

impl StoreOwnership {
    /// Creates the check for a directory to which the handle has written nothing yet. REQUIRES:
    /// `files` holds the directory open.
    pub fn new(files: Arc<dyn FileSystem>, directory: &Path) -> StoreOwnership {
        let current = AtomicFile::new(Arc::clone(&files), directory.join(filenames::CURRENT));
        StoreOwnership {
            files,
            directory: directory.to_path_buf(),
            current,
            manifest: Mutex::default(),
        }
    }

    fn manifest(&self) -> MutexGuard<'_, AppendState> {
        self.manifest.lock().ignore_poison()
    }

    /// Records the `CURRENT` that a writer finds when it opens the store, if there is one.
    pub fn note_found(&self) -> Result<()> {
        let path = self.directory.join(filenames::CURRENT);
        match self.files.open(&path, Access::Read) {
            Ok(file) => self.current.set_found(file),
            Err(error) if error.is_missing_file() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Marks the start of an append to the manifest. Returns an error if the directory does not
    /// hold the state that was written last.
    pub fn begin_append(&self) -> Result<()> {
        self.check()?;
        self.manifest().is_appending = true;
        Ok(())
    }

    /// Records the end of the manifest after an append, or after its rollback.
    pub fn end_append(&self, manifest: ManifestEnd) {
        *self.manifest() = AppendState { end: Some(Arc::new(manifest)), is_appending: false };
    }

    /// Replaces `CURRENT` durably by `file`, which `CurrentFile::prepare` made and which names
    /// `manifest`. After a failed call `CURRENT` is either the old or the new one.
    ///
    /// # Errors
    /// `Replaced`, with nothing changed, if the directory does not hold the state that was written
    /// last.
    pub fn replace_current(
        &self,
        files: &dyn FileSystem,
        file: Arc<dyn File>,
        manifest: ManifestEnd,
    ) -> Result<()> {
        self.check()?;
        let new = self.directory.join(filenames::CURRENT_NEW);
        self.current.replace(files, &new, file)?;
        // The former `CURRENT` may have this name now. A file that stays is removed before the next
        // is made.
        let _ = files.remove_file(&new);
        self.end_append(manifest);
        Ok(())
    }

    /// Returns an error if the directory does not hold the state that was written last. A check
    /// that cannot tell returns no error.
    pub fn check(&self) -> Result<()> {
        fail_point!("manifest-skip-replacement-check", |_| Ok(()));
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

impl OwnershipCheck for StoreOwnership {
    fn check(&self) -> Result<()> {
        StoreOwnership::check(self)
    }
}
