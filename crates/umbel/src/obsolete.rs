//! [`ObsoleteFiles`]: files that no edit names any more, kept while a reader of another process
//! pins a version that names them.
//!
//! INVARIANT: a file is removed, or used for something else, only after the edit that drops it is
//! durable, and after that no pin of a version up to the present one was found. A reader pins
//! before it reads `CURRENT`. So a reader whose pin was not found reads that edit, and does not
//! know the file.
//!
//! A version is a manifest and a number of its records: see [`version_of`]. Each record makes a new
//! one, and a later manifest has a higher id, over restarts too.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_env::{Access, FileSystem, Lock};

use crate::poison::Poison;

/// Bits of a version that count records.
const RECORD_BITS: u32 = 20;
/// Records from here on are one version.
const RECORDS_MAX: u64 = (1 << RECORD_BITS) - 1;
/// Manifests from here on have no version of their own, as the bytes of a lock file are 2^63.
const MANIFESTS_MAX: u64 = 1 << 42;

/// The version that a reader of so many records of a manifest pins. It pins all where none fits.
pub fn version_of(manifest_id: u64, records: u64) -> u64 {
    match manifest_id < MANIFESTS_MAX {
        true => manifest_id << RECORD_BITS | records.min(RECORDS_MAX),
        false => 0,
    }
}

/// The last version whose readers may know a file that the last of so many records drops.
fn version_before(manifest_id: u64, records: u64) -> u64 {
    match manifest_id < MANIFESTS_MAX {
        true if records < RECORDS_MAX => version_of(manifest_id, records).saturating_sub(1),
        true => version_of(manifest_id, records),
        false => MANIFESTS_MAX << RECORD_BITS,
    }
}

/// The obsolete files of a store, and the lock by which its owner sees pins.
#[derive(Debug)]
pub struct ObsoleteFiles {
    files: Arc<dyn FileSystem>,
    poison: Arc<Poison>,
    /// Readers of this version or an earlier one may know what is obsolete now.
    version: AtomicU64,
    /// `None` where the store is open for reading only, and after it was closed.
    lock: Mutex<Option<Box<dyn Lock>>>,
    /// The oldest version first.
    kept: Mutex<Vec<Kept>>,
    /// The number of files kept, and their bytes.
    sums: (AtomicU64, AtomicU64),
}

/// A file that is kept.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    bytes: u64,
    /// Readers of this version or an earlier one may know it.
    version: u64,
}

impl ObsoleteFiles {
    /// Of a store that holds `lock`, unless it is only read.
    pub fn new(
        files: Arc<dyn FileSystem>,
        poison: Arc<Poison>,
        lock: Option<Box<dyn Lock>>,
    ) -> Arc<ObsoleteFiles> {
        let version = AtomicU64::new(MANIFESTS_MAX << RECORD_BITS);
        let (lock, kept, sums) = (Mutex::new(lock), Mutex::default(), Default::default());
        Arc::new(ObsoleteFiles { files, poison, version, lock, kept, sums })
    }

    /// Notes that so many records of the manifest are durable.
    pub fn note_records(&self, manifest_id: u64, records: u64) {
        self.version.store(version_before(manifest_id, records), Ordering::Release);
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a reader pins a version up to this one. A failure to find out counts as a pin.
    fn is_pinned_through(&self, version: u64) -> bool {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        lock.as_ref().is_none_or(|lock| lock.is_pinned(version).unwrap_or(true))
    }

    /// Whether a reader may know a file that is obsolete now.
    /// REQUIRES: the edit that drops the file is durable.
    pub fn is_pinned(&self) -> bool {
        self.is_pinned_through(self.version.load(Ordering::Acquire))
    }

    /// Removes a file, or keeps it while a reader may know it. One that stays for another reason
    /// is removed by the next open.
    /// REQUIRES: the edit that drops the file is durable.
    pub fn remove(&self, path: &Path) {
        self.sweep();
        // Under the lock, so that versions stay in order.
        let mut kept = self.kept();
        let version = self.version.load(Ordering::Acquire);
        if !self.is_pinned_through(version) {
            drop(kept);
            let _ = self.files.remove_file(path);
            return;
        }
        let opened = self.files.open(path, Access::Read);
        let bytes = opened.and_then(|file| file.len()).unwrap_or(0);
        self.sums.0.fetch_add(1, Ordering::Relaxed);
        self.sums.1.fetch_add(bytes, Ordering::Relaxed);
        kept.push(Kept { path: path.to_path_buf(), bytes, version });
    }

    /// Whether files are kept.
    pub fn has_kept(&self) -> bool {
        self.sums.0.load(Ordering::Relaxed) > 0
    }

    /// How many files are kept, and their bytes.
    pub fn kept_sums(&self) -> (u64, u64) {
        (self.sums.0.load(Ordering::Relaxed), self.sums.1.load(Ordering::Relaxed))
    }

    /// Removes the kept files that no reader knows any more.
    pub fn sweep(&self) {
        if !self.has_kept() || self.poison.is_set() {
            return;
        }
        let mut kept = self.kept();
        // A pin of one version is one of every later version.
        let free = kept.iter().take_while(|file| !self.is_pinned_through(file.version)).count();
        for file in kept.drain(..free) {
            self.sums.0.fetch_sub(1, Ordering::Relaxed);
            self.sums.1.fetch_sub(file.bytes, Ordering::Relaxed);
            let _ = self.files.remove_file(&file.path);
        }
    }

    /// Releases the lock. What is kept then is removed by the next open.
    pub fn end(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
