//! [`Stats`]: the statistics of a store.

use std::time::Duration;

use crate::index::stream_existence::ExistenceStats;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;

/// Statistics of a store.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Position of the last visible event; 0 if there is none.
    pub position: u64,
    /// Bytes of the event log.
    pub log_bytes: u64,
    /// Number of files of the event log.
    pub chunks: usize,
    /// Number of chunks that scavenges rewrote.
    pub scavenged_chunks: usize,
    /// Bytes of the event log that scavenges freed.
    pub scavenged_bytes: u64,
    /// The index durably holds everything up to this position.
    pub indexed_through: u64,
    /// Approximate bytes of memory that views take until the next flush of the index.
    pub unflushed_view_bytes: usize,
    /// Files of the event log that the chunk manifest no longer names, kept for readers in other
    /// processes.
    pub pinned_files: u64,
    /// Bytes of the files that are kept for readers in other processes.
    pub pinned_file_bytes: u64,
    /// The time by which the wall clock is ahead of the time that the store believes; zero unless a
    /// jump of the clock is rejected.
    pub clock_rejected: Duration,
    /// Statistics of the existence filter.
    pub existence: ExistenceStats,
    /// State of the store's directory.
    pub directory: umbel::DirectoryStats,
    /// Statistics of the key-value store that holds the index.
    pub index: umbel::Stats,
}

pub(crate) fn collect_stats(shared: &StoreInner) -> Result<Stats> {
    shared.check_process()?;
    shared.log.pinned_files.remove_unpinned();
    let (pinned_files, pinned_file_bytes) = shared.log.pinned_files.totals();
    let chunks = shared.log.chunks.all();
    let scavenged = chunks.iter().filter(|chunk| chunk.scavenged.is_some());
    Ok(Stats {
        position: shared.visible.position(),
        log_bytes: shared.log.bytes(),
        chunks: chunks.len(),
        scavenged_chunks: scavenged.clone().count(),
        scavenged_bytes: scavenged.map(|c| c.end().saturating_sub(c.file_bytes())).sum(),
        indexed_through: shared.index.durable_through()?,
        unflushed_view_bytes: shared.index.views.bytes(),
        pinned_files,
        pinned_file_bytes,
        clock_rejected: shared.clock().rejected(),
        existence: shared.existence.stats(),
        directory: shared.directory(),
        index: shared.index.db().stats(),
    })
}
