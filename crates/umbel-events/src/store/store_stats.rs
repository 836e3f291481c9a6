//! [`Stats`]: what a store consists of.

use crate::error::Result;
use crate::existence::ExistenceStats;
use crate::shared::Shared;

/// What a store consists of.
#[derive(Debug, Clone)]
pub struct Stats {
    /// The position of the last event that can be seen; 0 where there is none.
    pub position: u64,
    /// Bytes of the event log.
    pub log_bytes: u64,
    /// Files of the event log.
    pub chunks: usize,
    /// How many of them were written anew by scavenges.
    pub scavenged_chunks: usize,
    /// Bytes of the event log that scavenges gave back.
    pub scavenged_bytes: u64,
    /// The index holds everything up to this position, after a crash too.
    pub indexed_through: u64,
    /// Bytes of memory, about, that views take until the index is flushed.
    pub view_tail_bytes: usize,
    /// Files of the event log that no table of chunks names any more, kept for readers of other
    /// processes.
    pub pinned_files: u64,
    /// Their bytes.
    pub pinned_file_bytes: u64,
    /// The existence filter.
    pub existence: ExistenceStats,
    /// Where the store's directory is.
    pub directory: umbel::DirectoryStats,
    /// The store the index is.
    pub index: umbel::Stats,
}

pub(crate) fn of(shared: &Shared) -> Result<Stats> {
    shared.check_process()?;
    shared.log.kept.sweep();
    let (pinned_files, pinned_file_bytes) = shared.log.kept.sums();
    let chunks = shared.log.chunks.all();
    let scavenged = chunks.iter().filter(|chunk| chunk.packed.is_some());
    Ok(Stats {
        position: shared.visible.position(),
        log_bytes: shared.log.bytes(),
        chunks: chunks.len(),
        scavenged_chunks: scavenged.clone().count(),
        scavenged_bytes: scavenged.map(|c| c.end().saturating_sub(c.file_bytes())).sum(),
        indexed_through: shared.index.durable_through()?,
        view_tail_bytes: shared.index.views.bytes(),
        pinned_files,
        pinned_file_bytes,
        existence: shared.existence.stats(),
        directory: shared.directory(),
        index: shared.index.db().stats(),
    })
}
