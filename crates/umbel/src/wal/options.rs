//! What a log is made with.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_env::Env;
use umbel_filter::HashSecret;

use crate::obsolete::ObsoleteFiles;

/// What [`super::Wal::new`] needs.
#[derive(Debug)]
pub struct WalOptions {
    /// The world.
    pub env: Env,
    /// The store's folder.
    pub folder: PathBuf,
    /// The most bytes of a segment, unless a record needs more.
    pub segment_bytes: u64,
    /// What salts are made of.
    pub secret: HashSecret,
    /// The allocator of file ids.
    pub ids: Arc<AtomicU64>,
    /// Files that no edit names any more.
    pub obsolete: Arc<ObsoleteFiles>,
    /// Whether a thread of its own does the chores.
    pub is_tended: bool,
}
