//! [`ObsoleteFiles`]: files that no edit names any more, kept while a reader of another process
//! pins a version that names them.
//!
//! INVARIANT: a file is removed or reused only after two steps. First the edit that drops the file
//! becomes durable. After that, a search finds no pin on a version up to the present one. See
//! [`PinnedFiles`]. A reader pins before it reads `CURRENT`.
//!
//! A version is identified by a manifest and a number of its records: see [`version_of`]. Each
//! record of the manifest makes a new version. A later manifest has a higher id, also after a
//! restart.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_env::{FileSystem, Lock, PinnedFiles};

use crate::fs::fatal_error::FatalError;

/// Bits of a version for the number of records.
const RECORD_BITS: u32 = 20;
/// From this number of records of a manifest on, all versions share one number.
const RECORDS_MAX: u64 = (1 << RECORD_BITS) - 1;
/// Manifests from this id on have no version of their own, because a lock file has 2^63 bytes.
const MANIFESTS_MAX: u64 = 1 << 42;

/// Returns the number of the version that a reader of `records` records of a manifest pins. If the
/// numbers do not fit into a version number, the reader pins all versions.
pub fn version_of(manifest_id: u64, records: u64) -> u64 {
    match manifest_id < MANIFESTS_MAX {
        true => manifest_id << RECORD_BITS | records.min(RECORDS_MAX),
        false => 0,
    }
}

/// Returns the last version whose readers can still use a file that record number `records` drops.
fn version_before(manifest_id: u64, records: u64) -> u64 {
    match manifest_id < MANIFESTS_MAX {
        true if records < RECORDS_MAX => version_of(manifest_id, records).saturating_sub(1),
        true => version_of(manifest_id, records),
        false => MANIFESTS_MAX << RECORD_BITS,
    }
}

/// Obsolete files of a store that are kept for readers of other processes: see [`PinnedFiles`].
#[derive(Debug)]
pub struct ObsoleteFiles {
    poison: Arc<FatalError>,
    /// The last version whose readers can still use files that are obsolete now.
    version: AtomicU64,
    kept: PinnedFiles,
}

impl ObsoleteFiles {
    /// Creates the set of obsolete files for a store that holds `lock`, unless it is open
    /// read-only.
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

    /// Whether a reader of another process can still use a file that is obsolete now. REQUIRES: the
    /// edit that drops the file is durable.
    pub fn is_pinned(&self) -> bool {
        self.kept.is_pinned_through(self.version.load(Ordering::Acquire))
    }

    /// Removes a file, or keeps it while a reader of another process can use it. The next open
    /// removes a file that stays for another reason. REQUIRES: the edit that drops the file is
    /// durable.
    pub fn remove(&self, path: &Path) {
        self.sweep();
        self.kept.remove(path, self.version.load(Ordering::Acquire));
    }

    /// Whether obsolete files are kept for readers.
    pub fn has_kept_files(&self) -> bool {
        self.kept.is_nonempty()
    }

    /// Number and bytes of the obsolete files that are kept for readers.
    pub fn kept_totals(&self) -> (u64, u64) {
        self.kept.totals()
    }

    /// Removes the kept files that no reader can use any more.
    pub fn sweep(&self) {
        if !self.poison.is_set() {
            self.kept.remove_unpinned();
        }
    }

    /// Releases the lock. The next open removes the obsolete files that are still kept.
    pub fn release_lock(&self) {
        self.kept.release_lock();
    }
}
