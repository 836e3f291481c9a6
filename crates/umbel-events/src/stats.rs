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
    /// The index holds everything up to this position, after a crash too.
    pub indexed_through: u64,
    /// The existence filter.
    pub existence: ExistenceStats,
    /// The store the index is.
    pub index: umbel::Stats,
}

pub(crate) fn of(shared: &Shared) -> Result<Stats> {
    Ok(Stats {
        position: shared.visible.position(),
        log_bytes: shared.log.bytes(),
        chunks: shared.log.chunks.all().len(),
        indexed_through: shared.index.durable_through()?,
        existence: shared.existence.stats(),
        index: shared.index.db().stats(),
    })
}
