//! [`WalOptions`]: parameters of a WAL.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_env::Env;
use umbel_filter::HashSecret;

use crate::fs::fatal_error::FatalError;
use crate::fs::obsolete_files::ObsoleteFiles;
use crate::store_budget::StoreBudget;

/// Maximum size of a WAL segment.
#[derive(Debug)]
pub enum SegmentSize {
    /// A fixed number of bytes.
    Fixed(u64),
    /// The number of bytes that a shared memory budget has for the next segment.
    Shared(Arc<StoreBudget>),
}

impl SegmentSize {
    /// Returns the maximum size of segments for a store with this budget.
    pub fn of(budget: &Arc<StoreBudget>) -> SegmentSize {
        match budget.membership() {
            Some(_) => SegmentSize::Shared(Arc::clone(budget)),
            None => SegmentSize::Fixed(budget.segment_bytes()),
        }
    }

    /// Returns the maximum size of the next segment.
    pub fn next(&self) -> u64 {
        match self {
            SegmentSize::Fixed(bytes) => *bytes,
            SegmentSize::Shared(budget) => budget.segment_bytes(),
        }
    }
}

/// Parameters of [`super::Wal::new`].
#[derive(Debug)]
pub struct WalOptions {
    /// The environment of the WAL's files.
    pub env: Env,
    /// The store's directory.
    pub folder: PathBuf,
    /// Maximum bytes of a segment, unless a record needs more.
    pub segment_bytes: SegmentSize,
    /// Secret from which the segments' salts derive.
    pub secret: HashSecret,
    /// The allocator of file ids.
    pub ids: Arc<AtomicU64>,
    /// Set that takes files that no edit names any more.
    pub obsolete: Arc<ObsoleteFiles>,
    /// The store's fatal error.
    pub fatal_error: Arc<FatalError>,
    /// Whether a background thread does the tasks of the WAL.
    pub has_worker: bool,
}
