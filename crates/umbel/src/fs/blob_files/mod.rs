//! [`BlobFiles`]: long values, each in a file of its own.
//!
//! A file of a long value, name included, is durable before an entry points at the file. Exactly
//! one entry points at such a file, in a memtable or a table; flushes and compactions move the
//! entry. Memtables and tables hold references to the files that their entries point at. Code that
//! drops an entry marks its file obsolete, and the drop of the last reference removes an obsolete
//! file. So a reader that holds a super version finds every file that an entry of it points at.
//!
//! INVARIANT: a file is removed only when no entry in a durable manifest's tables, and no record
//! that recovery would replay, points at the file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{BlobPointer, Error, Result};
use umbel_blob::{BlobReader, file_bytes};
use umbel_env::{File, FileSystem};

use crate::fs::fatal_error::FatalError;
use crate::fs::file_cache::FileCache;
use crate::fs::filenames;
use crate::fs::obsolete_files::ObsoleteFiles;

/// Number and bytes of files of long values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobTotals {
    /// Number of files of long values.
    pub files: u64,
    /// Bytes of the files of long values.
    pub bytes: u64,
}

impl BlobTotals {
    /// Totals of the files that `pointers` point at.
    pub fn of<'a>(pointers: impl IntoIterator<Item = &'a BlobPointer>) -> BlobTotals {
        pointers.into_iter().fold(BlobTotals::default(), |sum, pointer| BlobTotals {
            files: sum.files + 1,
            bytes: sum.bytes + file_bytes(pointer.value_bytes),
        })
    }
}

/// The files of a store's long values.
#[derive(Debug)]
pub struct BlobFiles {
    folder: PathBuf,
    files: Arc<dyn FileSystem>,
    descriptors: Arc<FileCache>,
    poison: Arc<FatalError>,
    obsolete: Arc<ObsoleteFiles>,
    live: Mutex<HashMap<u64, Weak<BlobFile>>>,
    /// Number and bytes of obsolete files that a reader can still read.
    obsolete_totals: (AtomicU64, AtomicU64),
}

/// The file of one long value. Dropping the last reference to an obsolete file removes it.
#[derive(Debug)]
pub struct BlobFile {
    /// Pointer to the file.
    pub pointer: BlobPointer,
    blobs: Arc<BlobFiles>,
    obsolete: AtomicBool,
}

impl BlobFiles {
    /// Creates the set of files in directory `folder`. After `descriptors` is shut down, the files
    /// can no longer be opened.
    pub fn new(
        folder: PathBuf,
        files: Arc<dyn FileSystem>,
        descriptors: Arc<FileCache>,
        poison: Arc<FatalError>,
        obsolete: Arc<ObsoleteFiles>,
    ) -> Arc<BlobFiles> {
        let (held, leaving) = (Mutex::default(), Default::default());
        Arc::new(BlobFiles {
            folder,
            files,
            descriptors,
            poison,
            obsolete,
            live: held,
            obsolete_totals: leaving,
        })
    }

    fn lock_live(&self) -> MutexGuard<'_, HashMap<u64, Weak<BlobFile>>> {
        self.live.lock().ignore_poison()
    }

    fn path(&self, id: u64) -> PathBuf {
        filenames::blob(&self.folder, id)
    }

    /// Writes `value` into file `id` and syncs the file's bytes, but not its name. After an error
    /// file `id` does not exist.
    pub fn write(&self, id: u64, value: &[u8]) -> Result<BlobPointer> {
        let path = self.path(id);
        let file = self.files.create(&path)?;
        umbel_blob::write(&*file, id, value).inspect_err(|_| self.remove_unreferenced(id))
    }

    /// Removes a file that no entry ever pointed at. If a fatal error leaves the durable state
    /// unknown, the file stays, and the next open removes it.
    pub fn remove_unreferenced(&self, id: u64) {
        if !self.poison.is_set() {
            let _ = self.files.remove_file(&self.path(id));
        }
    }

    /// Returns a reference to the file that `pointer` points at, which keeps the file.
    pub fn acquire(self: &Arc<Self>, pointer: &BlobPointer) -> Arc<BlobFile> {
        let mut held = self.lock_live();
        if let Some(file) = held.get(&pointer.id).and_then(Weak::upgrade) {
            return file;
        }
        let (pointer, obsolete) = (*pointer, AtomicBool::new(false));
        let file = Arc::new(BlobFile { pointer, blobs: Arc::clone(self), obsolete });
        held.insert(pointer.id, Arc::downgrade(&file));
        file
    }

    /// Whether a reference to file `id` exists.
    pub fn is_live(&self, id: u64) -> bool {
        self.lock_live().get(&id).is_some_and(|file| file.strong_count() > 0)
    }

    /// Returns the totals of the obsolete files that a reader can still read.
    pub fn obsolete_totals(&self) -> BlobTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BlobTotals { files: read(&self.obsolete_totals.0), bytes: read(&self.obsolete_totals.1) }
    }

    fn open(&self, pointer: &BlobPointer) -> Result<BlobReader> {
        let path = self.path(pointer.id);
        let file: Arc<dyn File> = self.descriptors.open_uncached(&path).map_err(|error| {
            if error.is_missing_file() {
                let reason = "an entry points at this file, but it is missing";
                return Error::corruption(&path, 0, reason);
            }
            error
        })?;
        BlobReader::open(file, pointer)
    }

    /// Reads the value that `pointer` points at. REQUIRES: a [`BlobFile`] refers to the value's
    /// file.
    ///
    /// # Errors
    /// `Corruption` with the file's name if it is missing or damaged, `Closed` after the store was
    /// closed.
    pub fn read(&self, pointer: &BlobPointer) -> Result<Vec<u8>> {
        self.open(pointer)?.value()
    }

    /// Reads like [`BlobFiles::read`], with the pointer as an entry encodes it.
    pub fn read_at(&self, entry: &[u8]) -> Result<Vec<u8>> {
        self.read(&self.require_pointer(BlobPointer::decode(entry))?)
    }

    /// Reads and checks every byte of the file that `pointer` points at.
    pub fn verify(&self, pointer: &BlobPointer) -> Result<()> {
        self.open(pointer)?.verify()
    }

    /// Returns the pointer that an entry holds; a damage error if the entry holds no pointer.
    pub fn require_pointer(&self, pointer: Option<BlobPointer>) -> Result<BlobPointer> {
        pointer.ok_or_else(|| {
            let reason = "an entry of a table here has the kind of a long value, but no valid \
                          pointer to a file";
            Error::corruption(&self.folder, 0, reason)
        })
    }
}

impl BlobFile {
    /// Marks the file obsolete: no entry points at it any more. REQUIRES: the edit that removes the
    /// last entry is durable.
    pub fn mark_obsolete(&self) {
        if self.obsolete.swap(true, Ordering::AcqRel) {
            return;
        }
        let leaving = &self.blobs.obsolete_totals;
        leaving.0.fetch_add(1, Ordering::Relaxed);
        leaving.1.fetch_add(file_bytes(self.pointer.value_bytes), Ordering::Relaxed);
        fail_point!("blob-remove-under-reader", |_| {
            self.blobs.remove_unreferenced(self.pointer.id)
        });
    }
}

impl Drop for BlobFile {
    fn drop(&mut self) {
        {
            let mut held = self.blobs.lock_live();
            // Another thread may have registered a new holder meanwhile.
            if held.get(&self.pointer.id).is_some_and(|file| file.strong_count() == 0) {
                held.remove(&self.pointer.id);
            }
        }
        if !self.obsolete.load(Ordering::Acquire) {
            return;
        }
        let leaving = &self.blobs.obsolete_totals;
        leaving.0.fetch_sub(1, Ordering::Relaxed);
        leaving.1.fetch_sub(file_bytes(self.pointer.value_bytes), Ordering::Relaxed);
        if !self.blobs.poison.is_set() {
            self.blobs.obsolete.remove(&self.blobs.path(self.pointer.id));
        }
    }
}

/// Marks obsolete the files in `before` that are not in `after`. REQUIRES: the edit that replaces
/// `before` with `after` is durable.
pub fn mark_dropped<'a>(
    before: impl IntoIterator<Item = Arc<BlobFile>>,
    after: impl IntoIterator<Item = &'a BlobPointer>,
) {
    let before: Vec<Arc<BlobFile>> = before.into_iter().collect();
    if before.is_empty() {
        return;
    }
    let kept: std::collections::HashSet<u64> = after.into_iter().map(|blob| blob.id).collect();
    let dropped = before.iter().filter(|file| !kept.contains(&file.pointer.id));
    dropped.for_each(|file| file.mark_obsolete());
}

#[cfg(test)]
mod tests;
