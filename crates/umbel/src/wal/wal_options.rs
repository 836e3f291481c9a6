//! What a log is made with.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_env::Env;
use umbel_filter::HashSecret;

use crate::budget::Budget;
use crate::obsolete::ObsoleteFiles;

/// How many bytes a segment has at most.
#[derive(Debug)]
pub enum SegmentBytes {
    /// So many.
    Fixed(u64),
    /// As many as a shared memory budget has for the next one.
    Shared(Arc<Budget>),
}

impl SegmentBytes {
    /// Those of a store with this budget.
    pub fn of(budget: &Arc<Budget>) -> SegmentBytes {
        match budget.membership() {
            Some(_) => SegmentBytes::Shared(Arc::clone(budget)),
            None => SegmentBytes::Fixed(budget.segment_bytes()),
        }
    }

    /// Those of the next one.
    pub fn next(&self) -> u64 {
        match self {
            SegmentBytes::Fixed(bytes) => *bytes,
            SegmentBytes::Shared(budget) => budget.segment_bytes(),
        }
    }
}

/// What [`super::Wal::new`] needs.
#[derive(Debug)]
pub struct WalOptions {
    /// The world.
    pub env: Env,
    /// The store's folder.
    pub folder: PathBuf,
    /// The most bytes of a segment, unless a record needs more.
    pub segment_bytes: SegmentBytes,
    /// What salts are made of.
    pub secret: HashSecret,
    /// The allocator of file ids.
    pub ids: Arc<AtomicU64>,
    /// Files that no edit names any more.
    pub obsolete: Arc<ObsoleteFiles>,
    /// Whether a thread of its own does the chores.
    pub is_tended: bool,
}
