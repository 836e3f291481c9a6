//! [`ObsoleteFiles`]: files that no edit names any more, kept while a reader of another process
//! pins a version that names them.
//!
//! INVARIANT: a file is removed or reused only after two steps: the edit that drops it is durable,
//! and then no pin of a version up to the present one was found. See [`PinnedFiles`]. A reader pins
//! before it reads `CURRENT`.
//!
//! A version is a manifest and a number of its records: see [`version_of`]. Each record makes a new
//! version. A later manifest has a higher id, also after a restart.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_env::{FileSystem, Lock, PinnedFiles};

use crate::fs::fatal_error::FatalError;

/// Bits of a version for the number of records.
const RECORD_BITS: u32 = 20;
/// From this number of records on, all share one version.
const RECORDS_MAX: u64 = (1 << RECORD_BITS) - 1;
/// Manifests from this id on have no version of their own, because a lock file has 2^63 bytes.
const MANIFESTS_MAX: u64 = 1 << 42;

/// Returns the version that a reader of `records` records of a manifest pins. Where no version
/// fits, it pins all.
pub fn version_of(manifest_id: u64, records: u64) -> u64 {
    match manifest_id < MANIFESTS_MAX {
        true => manifest_id << RECORD_BITS | records.min(RECORDS_MAX),
        false => 0,
    }
}

/// Returns the last version whose readers may know a file that record number `records` drops.
fn version_before(manifest_id: u64, records: u64) -> u64 {
    match manifest_id < MANIFESTS_MAX {
        true if records < RECORDS_MAX => version_of(manifest_id, records).saturating_sub(1),
        true => version_of(manifest_id, records),
        false => MANIFESTS_MAX << RECORD_BITS,
    }
}

/// Obsolete files of a store: see [`PinnedFiles`].
#[derive(Debug)]
pub struct ObsoleteFiles {
    poison: Arc<FatalError>,
    /// Readers of this version or an earlier one may know files that are obsolete now.
    version: AtomicU64,
    kept: PinnedFiles,
}

impl ObsoleteFiles {
    /// Creates the set for a store that holds `lock`, unless it is open read-only.
    pub fn new(
        files: Arc<dyn FileSystem>,
        poison: Arc<FatalError>,
        lock: Option<Box<dyn Lock>>,
    ) -> Arc<ObsoleteFiles> {
        let version = AtomicU64::new(MANIFESTS_MAX << RECORD_BITS);
        Arc::new(ObsoleteFiles { poison, version, kept: PinnedFiles::new(files, lock) })
    }

    /// Notes that `records` records of the manifest are durable.
    pub fn note_records(&self, manifest_id: u64, records: u64) {
        self.version.store(version_before(manifest_id, records), Ordering::Release);
    }

    /// Whether a reader may know a file that is obsolete now.
    /// REQUIRES: the edit that drops the file is durable.
    pub fn is_pinned(&self) -> bool {
        self.kept.is_pinned_through(self.version.load(Ordering::Acquire))
    }

    /// Removes a file, or keeps it while a reader may know it. The next open removes a file that
    /// stays for another reason.
    /// REQUIRES: the edit that drops the file is durable.
    pub fn remove(&self, path: &Path) {
        self.sweep();
        self.kept.remove(path, self.version.load(Ordering::Acquire));
    }

    /// Whether files are kept.
    pub fn has_kept_files(&self) -> bool {
        self.kept.is_nonempty()
    }

    /// Number of kept files and their bytes.
    pub fn kept_totals(&self) -> (u64, u64) {
        self.kept.totals()
    }

    /// Removes the kept files that no reader knows any more.
    pub fn sweep(&self) {
        if !self.poison.is_set() {
            self.kept.remove_unpinned();
        }
    }

    /// Releases the lock. The next open removes the files still kept.
    pub fn release_lock(&self) {
        self.kept.release_lock();
    }
}
