//! [`TableContext`]: state that every table of a store shares.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};

use crate::cache::block_cache::ClockCache;
use crate::fs::blob_files::BlobFiles;
use crate::fs::fatal_error::FatalError;
use crate::fs::file_cache::FileCache;
use crate::fs::obsolete_files::ObsoleteFiles;
use crate::store_budget::StoreBudget;
use crate::version::key_hashing::KeyHashers;

/// State that every table of a store shares.
#[derive(Debug)]
pub struct TableContext {
    /// The store's directory.
    pub folder: PathBuf,
    /// The store's hash functions.
    pub hashers: KeyHashers,
    /// The store's block cache.
    pub cache: Arc<ClockCache>,
    /// Set after a failed write: files are no longer removed.
    pub fatal_error: Arc<FatalError>,
    /// The tables' open files.
    pub file_cache: Arc<FileCache>,
    /// The memory that readers may hold.
    pub budget: Arc<StoreBudget>,
    /// Notified when readers exceed their memory.
    pub owner: OnceLock<Weak<dyn TableOwner>>,
    /// Number of openings of readers.
    pub openings: AtomicU64,
    /// Files of replaced tables that a reader still uses, and their bytes.
    pub retired_files: (AtomicU64, AtomicU64),
    /// The files of long values.
    pub blobs: Arc<BlobFiles>,
    /// Files that no edit names any more.
    pub obsolete: Arc<ObsoleteFiles>,
}

/// Keeps the readers of a store's tables within their memory.
pub trait TableOwner: Send + Sync + Debug {
    /// Closes readers. May be called with any lock held except leaf locks.
    fn close_readers(&self);

    /// Decides again which filters are kept, and reloads the one of this table if reads need it.
    /// Called while reading, possibly with the commit lock held.
    fn note_filter_miss(&self, table: u64);
}
