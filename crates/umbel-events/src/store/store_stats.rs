//! [`Stats`]: the statistics of a store.

use std::time::Duration;

use crate::index::stream_existence::ExistenceStats;
use crate::primitives::store_clock::TICKS_PER_MICRO;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;

/// Statistics of a store.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Position of the last visible event; 0 if there is none.
    pub position: u64,
    /// Number of events appended since the store was opened, those of the store's own streams
    /// included.
    pub events_appended: u64,
    /// Bytes of the event log.
    pub log_bytes: u64,
    /// Maximum bytes of the event log; `None` for no limit.
    pub log_quota_bytes: Option<u64>,
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
    /// The time by which the last event is ahead of the wall clock; zero up to five minutes. Later
    /// events get the time of the last event until the wall clock has passed it.
    pub clock_behind: Duration,
    /// Number of the current clock epoch, from 1.
    pub clock_epoch: u64,
    /// Time since 1970 when the current clock epoch began; `None` for the first one.
    pub clock_epoch_start: Option<Duration>,
    /// Statistics of the existence filter.
    pub existence: ExistenceStats,
    /// Number of errors about damaged data since the store was opened.
    pub damage_errors: u64,
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
    let (clock, epoch) = (shared.clock().state(), shared.log.epochs.last());
    let scavenged = chunks.iter().filter(|chunk| chunk.scavenged.is_some());
    Ok(Stats {
        position: shared.visible.position(),
        events_appended: shared.visible.appended(),
        log_bytes: shared.log.bytes(),
        log_quota_bytes: shared.log_quota_bytes,
        chunks: chunks.len(),
        scavenged_chunks: scavenged.clone().count(),
        scavenged_bytes: scavenged.map(|c| c.end().saturating_sub(c.file_bytes())).sum(),
        indexed_through: shared.index.durable_through()?,
        unflushed_view_bytes: shared.index.views.bytes(),
        pinned_files,
        pinned_file_bytes,
        clock_rejected: clock.rejected,
        clock_behind: clock.behind,
        clock_epoch: shared.log.epochs.number(),
        clock_epoch_start: epoch.map(|epoch| Duration::from_micros(epoch.start / TICKS_PER_MICRO)),
        existence: shared.existence.stats(),
        damage_errors: shared.damage.count(),
        directory: shared.directory(),
        index: shared.index.db().stats(),
    })
}
