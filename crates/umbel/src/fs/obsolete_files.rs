//! [`ObsoleteFiles`]: files that no edit names any more, kept while a reader of another process
//! pins a version that names them.
//!
//! INVARIANT: a file is removed, or used for something else, only after the edit that drops it is
//! durable, and after that no pin of a version up to the present one was found: see [`KeptFiles`].
//! A reader pins before it reads `CURRENT`.
//!
//! A version is a manifest and a number of its records: see [`version_of`]. Each record makes a new
//! one, and a later manifest has a higher id, over restarts too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_env::{FileSystem, KeptFiles, Lock};

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

/// The obsolete files of a store: see [`KeptFiles`].
#[derive(Debug)]
pub struct ObsoleteFiles {
    poison: Arc<Poison>,
    /// Readers of this version or an earlier one may know what is obsolete now.
    version: AtomicU64,
    kept: KeptFiles,
}

impl ObsoleteFiles {
    /// Of a store that holds `lock`, unless it is only read.
    pub fn new(
        files: Arc<dyn FileSystem>,
        poison: Arc<Poison>,
        lock: Option<Box<dyn Lock>>,
    ) -> Arc<ObsoleteFiles> {
        let version = AtomicU64::new(MANIFESTS_MAX << RECORD_BITS);
        Arc::new(ObsoleteFiles { poison, version, kept: KeptFiles::new(files, lock) })
    }

    /// Notes that so many records of the manifest are durable.
    pub fn note_records(&self, manifest_id: u64, records: u64) {
        self.version.store(version_before(manifest_id, records), Ordering::Release);
    }

    /// Whether a reader may know a file that is obsolete now.
    /// REQUIRES: the edit that drops the file is durable.
    pub fn is_pinned(&self) -> bool {
        self.kept.is_pinned_through(self.version.load(Ordering::Acquire))
    }

    /// Removes a file, or keeps it while a reader may know it. One that stays for another reason
    /// is removed by the next open.
    /// REQUIRES: the edit that drops the file is durable.
    pub fn remove(&self, path: &Path) {
        self.sweep();
        self.kept.remove(path, self.version.load(Ordering::Acquire));
    }

    /// Whether files are kept.
    pub fn has_kept(&self) -> bool {
        self.kept.has_some()
    }

    /// How many files are kept, and their bytes.
    pub fn kept_sums(&self) -> (u64, u64) {
        self.kept.sums()
    }

    /// Removes the kept files that no reader knows any more.
    pub fn sweep(&self) {
        if !self.poison.is_set() {
            self.kept.sweep();
        }
    }

    /// Releases the lock. What is kept then is removed by the next open.
    pub fn end(&self) {
        self.kept.end();
    }
}
