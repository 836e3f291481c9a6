//! [`TableContext`]: state that all tables of a store share.

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

/// State that all tables of a store share.
#[derive(Debug)]
pub struct TableContext {
    /// The store's directory.
    pub folder: PathBuf,
    /// The store's hash functions.
    pub hashers: KeyHashers,
    /// The store's block cache.
    pub cache: Arc<ClockCache>,
    /// The fatal error; once it is set, no file is removed any more.
    pub fatal_error: Arc<FatalError>,
    /// The tables' open files.
    pub file_cache: Arc<FileCache>,
    /// The memory budget, which limits table readers.
    pub budget: Arc<StoreBudget>,
    /// The store, which is notified when table readers exceed their memory limit.
    pub owner: OnceLock<Weak<dyn TableOwner>>,
    /// Number of table readers opened so far.
    pub openings: AtomicU64,
    /// Number and bytes of the files of replaced tables that readers still use.
    pub retired_files: (AtomicU64, AtomicU64),
    /// The files of long values.
    pub blobs: Arc<BlobFiles>,
    /// Files that no edit names any more.
    pub obsolete: Arc<ObsoleteFiles>,
}

/// Keeps the readers of a store's tables within their memory limit.
pub trait TableOwner: Send + Sync + Debug {
    /// Closes table readers. The caller may hold any lock except leaf locks.
    fn close_readers(&self);

    /// Decides again which filters are kept, and loads the filter of table `table` if it should be
    /// in memory. Reads call it, possibly with the commit lock held.
    fn note_filter_miss(&self, table: u64);
}
