//! [`Blobs`]: values too long to stand among the keys, each in a file of its own.
//!
//! A file is durable, name included, before anything points at it. From then on one entry points at
//! it, in a memtable or in a table, and moves from one to the next. Who holds entries holds the
//! files that they point at; whoever drops the entry says so, and the file goes with the last that
//! holds it. So a reader that holds a view finds every file that its entries point at.
//!
//! INVARIANT: a file is removed only after no durable manifest, and no record that recovery would
//! replay, points at it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use umbel_base::{BlobPointer, Error, Result};
use umbel_blob::{Blob, file_bytes};
use umbel_env::{File, FileSystem};

use crate::descriptors::Descriptors;
use crate::names;
use crate::obsolete::ObsoleteFiles;
use crate::poison::Poison;

/// A number of files, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Sum {
    /// The sum of the files of these values.
    pub fn of<'a>(pointers: impl IntoIterator<Item = &'a BlobPointer>) -> Sum {
        pointers.into_iter().fold(Sum::default(), |sum, pointer| Sum {
            files: sum.files + 1,
            bytes: sum.bytes + file_bytes(pointer.value_bytes),
        })
    }
}

/// The files of long values of a store.
#[derive(Debug)]
pub struct Blobs {
    folder: PathBuf,
    files: Arc<dyn FileSystem>,
    descriptors: Arc<Descriptors>,
    poison: Arc<Poison>,
    obsolete: Arc<ObsoleteFiles>,
    held: Mutex<HashMap<u64, Weak<BlobFile>>>,
    /// Files that nothing points at any more but that somebody may read, and their bytes.
    leaving: (AtomicU64, AtomicU64),
}

/// The file of one value. Dropping the last reference of one that nothing points at any more
/// removes it.
#[derive(Debug)]
pub struct BlobFile {
    /// What points at it.
    pub pointer: BlobPointer,
    blobs: Arc<Blobs>,
    obsolete: AtomicBool,
}

impl Blobs {
    /// The files in `folder`. `descriptors` says when they may no longer be opened.
    pub fn new(
        folder: PathBuf,
        files: Arc<dyn FileSystem>,
        descriptors: Arc<Descriptors>,
        poison: Arc<Poison>,
        obsolete: Arc<ObsoleteFiles>,
    ) -> Arc<Blobs> {
        let (held, leaving) = (Mutex::default(), Default::default());
        Arc::new(Blobs { folder, files, descriptors, poison, obsolete, held, leaving })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Weak<BlobFile>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: u64) -> PathBuf {
        names::blob(&self.folder, id)
    }

    /// Writes `value` into file `id` and makes its bytes durable, but not its name. After an error
    /// there is no such file.
    pub fn write(&self, id: u64, value: &[u8]) -> Result<BlobPointer> {
        let path = self.path(id);
        let file = self.files.create(&path)?;
        umbel_blob::write(&*file, id, value).inspect_err(|_| self.discard(id))
    }

    /// Makes the names of all files written so far durable. A failure is final: what it was to make
    /// durable may be names of others, too.
    pub fn sync_names(&self) -> Result<()> {
        self.files.sync_dir(&self.folder)
    }

    /// Removes a file that nothing ever pointed at, unless what is durable is unknown. One that
    /// stays is found and removed at the next open.
    pub fn discard(&self, id: u64) {
        if !self.poison.is_set() {
            let _ = self.files.remove_file(&self.path(id));
        }
    }

    /// Holds the file that `pointer` points at.
    pub fn hold(self: &Arc<Self>, pointer: &BlobPointer) -> Arc<BlobFile> {
        let mut held = self.held();
        if let Some(file) = held.get(&pointer.id).and_then(Weak::upgrade) {
            return file;
        }
        let (pointer, obsolete) = (*pointer, AtomicBool::new(false));
        let file = Arc::new(BlobFile { pointer, blobs: Arc::clone(self), obsolete });
        held.insert(pointer.id, Arc::downgrade(&file));
        file
    }

    /// Whether somebody holds file `id`.
    pub fn is_held(&self, id: u64) -> bool {
        self.held().get(&id).is_some_and(|file| file.strong_count() > 0)
    }

    /// Files that nothing points at any more but that somebody may read.
    pub fn leaving(&self) -> Sum {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sum { files: read(&self.leaving.0), bytes: read(&self.leaving.1) }
    }

    fn open(&self, pointer: &BlobPointer) -> Result<Blob> {
        let path = self.path(pointer.id);
        let file: Arc<dyn File> = self.descriptors.open_for_once(&path).map_err(|error| {
            if error.is_missing_file() {
                let reason = "an entry points at this file, but it is missing";
                return Error::corruption(&path, 0, reason);
            }
            error
        })?;
        Blob::open(file, pointer)
    }

    /// Reads the value that `pointer` points at. REQUIRES: somebody holds the file.
    ///
    /// # Errors
    /// `Corruption` that names the file where it is missing or damaged, `Closed` after the store
    /// was closed.
    pub fn read(&self, pointer: &BlobPointer) -> Result<Vec<u8>> {
        self.open(pointer)?.value()
    }

    /// As [`Blobs::read`], with the pointer as it stands in an entry.
    pub fn read_at(&self, entry: &[u8]) -> Result<Vec<u8>> {
        self.read(&self.found(BlobPointer::decode(entry))?)
    }

    /// Reads and checks every byte of the file that `pointer` points at.
    pub fn verify(&self, pointer: &BlobPointer) -> Result<()> {
        self.open(pointer)?.verify()
    }

    /// The pointer that an entry was found to hold, which had better be one.
    pub fn found(&self, pointer: Option<BlobPointer>) -> Result<BlobPointer> {
        pointer.ok_or_else(|| {
            let reason = "an entry of a table here is said to point at a file, but does not";
            Error::corruption(&self.folder, 0, reason)
        })
    }
}

impl BlobFile {
    /// Says that nothing points at it any more. REQUIRES: the edit after which that is so is
    /// durable.
    pub fn mark_obsolete(&self) {
        if self.obsolete.swap(true, Ordering::AcqRel) {
            return;
        }
        let leaving = &self.blobs.leaving;
        leaving.0.fetch_add(1, Ordering::Relaxed);
        leaving.1.fetch_add(file_bytes(self.pointer.value_bytes), Ordering::Relaxed);
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::BlobRemovedEarly.is_on() {
            self.blobs.discard(self.pointer.id);
        }
    }
}

impl Drop for BlobFile {
    fn drop(&mut self) {
        {
            let mut held = self.blobs.held();
            // Somebody may have taken its place meanwhile.
            if held.get(&self.pointer.id).is_some_and(|file| file.strong_count() == 0) {
                held.remove(&self.pointer.id);
            }
        }
        if !self.obsolete.load(Ordering::Acquire) {
            return;
        }
        let leaving = &self.blobs.leaving;
        leaving.0.fetch_sub(1, Ordering::Relaxed);
        leaving.1.fetch_sub(file_bytes(self.pointer.value_bytes), Ordering::Relaxed);
        if !self.blobs.poison.is_set() {
            self.blobs.obsolete.remove(&self.blobs.path(self.pointer.id));
        }
    }
}

/// Says of those `before` that are not among those `after` that nothing points at them any more.
/// REQUIRES: the edit that puts those after in the place of those before is durable.
pub fn retire<'a>(
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
#[path = "blobs_tests.rs"]
mod tests;
