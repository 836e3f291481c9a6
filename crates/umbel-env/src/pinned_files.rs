//! [`PinnedFiles`]: obsolete files that stay while a reader of another process pins a version that
//! names them.
//!
//! INVARIANT: a file is removed only after the change that drops the file is durable, and then no
//! pin of a version that names the file was found. A reader pins before it reads the list of files.
//! So a reader whose pin was not found reads a list without the file.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use crate::file_system::{Access, FileSystem, Lock};

/// The obsolete files of a store, and the lock by which the store's writer finds pins.
#[derive(Debug)]
pub struct PinnedFiles {
    files: Arc<dyn FileSystem>,
    /// The store's lock; `None` if the store is open read-only or was closed.
    lock: Mutex<Option<Box<dyn Lock>>>,
    kept: Mutex<KeptFiles>,
    /// The number of files kept, and their bytes.
    totals: (AtomicU64, AtomicU64),
}

/// The files that are kept.
#[derive(Debug, Default)]
struct KeptFiles {
    /// By version and path. Readers of this version or an earlier one may know the file.
    bytes: BTreeMap<(u64, PathBuf), u64>,
    paths: HashSet<PathBuf>,
}

impl PinnedFiles {
    /// Creates the obsolete files of a store that holds `lock`. Without a lock, in a store opened
    /// read-only, no file is removed.
    pub fn new(files: Arc<dyn FileSystem>, lock: Option<Box<dyn Lock>>) -> PinnedFiles {
        let (lock, kept, sums) = (Mutex::new(lock), Mutex::default(), Default::default());
        PinnedFiles { files, lock, kept, totals: sums }
    }

    fn kept(&self) -> MutexGuard<'_, KeptFiles> {
        self.kept.lock().ignore_poison()
    }

    /// Whether a reader pins `version` or an earlier one. A failed check counts as a pin.
    pub fn is_pinned_through(&self, version: u64) -> bool {
        let lock = self.lock.lock().ignore_poison();
        lock.as_ref().is_none_or(|lock| lock.is_pinned(version).unwrap_or(true))
    }

    /// Removes a file, or keeps it while readers of `version` or an earlier version, which can use
    /// the file, exist. The next open removes a file that stays for another reason.
    /// REQUIRES: the change that drops the file is durable.
    pub fn remove(&self, path: &Path, version: u64) {
        let mut kept = self.kept();
        if !self.is_pinned_through(version) {
            drop(kept);
            let _ = self.files.remove_file(path);
            return;
        }
        if kept.paths.contains(path) {
            return;
        }
        let opened = self.files.open(path, Access::Read);
        let bytes = opened.and_then(|file| file.len()).unwrap_or(0);
        self.totals.0.fetch_add(1, Ordering::Relaxed);
        self.totals.1.fetch_add(bytes, Ordering::Relaxed);
        kept.paths.insert(path.to_path_buf());
        kept.bytes.insert((version, path.to_path_buf()), bytes);
    }

    /// Whether the file at `path` is kept.
    pub fn contains(&self, path: &Path) -> bool {
        self.is_nonempty() && self.kept().paths.contains(path)
    }

    /// Whether any file is kept.
    pub fn is_nonempty(&self) -> bool {
        self.totals.0.load(Ordering::Relaxed) > 0
    }

    /// Number of files that are kept, and their bytes.
    pub fn totals(&self) -> (u64, u64) {
        (self.totals.0.load(Ordering::Relaxed), self.totals.1.load(Ordering::Relaxed))
    }

    /// Removes the kept files that no reader can use any more.
    pub fn remove_unpinned(&self) {
        if !self.is_nonempty() {
            return;
        }
        let mut kept = self.kept();
        // A pin of one version is one of every later version.
        let mut unpinned = None;
        while let Some(file) = kept.bytes.first_entry() {
            let version = file.key().0;
            if unpinned != Some(version) && self.is_pinned_through(version) {
                break;
            }
            unpinned = Some(version);
            let ((_, path), bytes) = file.remove_entry();
            kept.paths.remove(&path);
            self.totals.0.fetch_sub(1, Ordering::Relaxed);
            self.totals.1.fetch_sub(bytes, Ordering::Relaxed);
            let _ = self.files.remove_file(&path);
        }
    }

    /// Releases the lock. The next open removes the files that are still kept.
    pub fn release_lock(&self) {
        self.lock.lock().ignore_poison().take();
    }
}
