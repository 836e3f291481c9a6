//! [`LogQuota`]: the limit of the event log's bytes.
//!
//! Events that hide others, and those of system streams, may use a reserve above the quota. So
//! streams can be deleted, and the server's own state can be written, once clients have filled the
//! quota. A scavenge frees bytes, and appends are accepted again.

use std::sync::{Arc, Weak};

use crate::append::append_plan::{self, AppendPlan};
use crate::event_log::EventLog;
use crate::event_log::chunk::Chunk;
use crate::types::error::{Error, Result};

/// Fraction of the quota that is reserved above it, and the limits of this reserve in bytes.
const RESERVE: (u64, u64, u64) = (16, 1 << 20, 256 << 20);

/// Limit of the event log's bytes. The appender owns it.
#[derive(Debug)]
pub struct LogQuota {
    /// Maximum bytes; `None` for no limit.
    bytes_max: Option<u64>,
    /// The last sum over all chunks.
    measured: Option<ChunkSum>,
}

/// Bytes of all chunks except the one that is being written. The sum over the chunks takes long in
/// a large log.
#[derive(Debug)]
struct ChunkSum {
    /// List of the chunks. A weak reference, so that the files of replaced chunks can be closed.
    chunks: Weak<Vec<Arc<Chunk>>>,
    /// Id of the chunk that is being written.
    active: Option<u64>,
    /// Bytes of the others.
    other_bytes: u64,
}

impl LogQuota {
    /// Creates a quota of this many bytes; `None` for no limit.
    pub fn new(bytes_max: Option<u64>) -> LogQuota {
        LogQuota { bytes_max, measured: None }
    }

    /// Checks that the log may grow by these plans. `active` is the chunk that is being written.
    ///
    /// # Errors
    /// [`Error::LogQuotaExceeded`] where the log would exceed the quota.
    pub fn check(
        &mut self,
        log: &EventLog,
        active: Option<&Arc<Chunk>>,
        plans: &[AppendPlan<'_>],
    ) -> Result<()> {
        let Some(quota_bytes) = self.bytes_max else { return Ok(()) };
        let log_bytes = self.log_bytes(log, active);
        let bytes = append_plan::payload_bytes(plans) as u64;
        let reserve = match plans.iter().all(AppendPlan::may_use_reserve) {
            true => reserve_bytes(quota_bytes),
            false => 0,
        };
        match log_bytes.saturating_add(bytes) > quota_bytes.saturating_add(reserve) {
            true => {
                let directory = log.folder().to_path_buf();
                Err(Error::LogQuotaExceeded { directory, bytes, log_bytes, quota_bytes })
            }
            false => Ok(()),
        }
    }

    /// Bytes of the written parts of all chunks.
    fn log_bytes(&mut self, log: &EventLog, active: Option<&Arc<Chunk>>) -> u64 {
        let chunks = log.chunks.all();
        let active_bytes = active.map_or(0, |chunk| chunk.file_bytes());
        let id = active.map(|chunk| chunk.id);
        let is_current = |sum: &&ChunkSum| {
            sum.active == id && std::ptr::eq(sum.chunks.as_ptr(), Arc::as_ptr(&chunks))
        };
        if let Some(sum) = self.measured.as_ref().filter(is_current) {
            return sum.other_bytes + active_bytes;
        }
        let others = chunks.iter().filter(|chunk| Some(chunk.id) != id);
        let other_bytes = others.map(|chunk| chunk.file_bytes()).sum();
        let chunks = Arc::downgrade(&chunks);
        self.measured = Some(ChunkSum { chunks, active: id, other_bytes });
        other_bytes + active_bytes
    }
}

/// Bytes that are reserved above a quota.
fn reserve_bytes(quota_bytes: u64) -> u64 {
    let (fraction, least, most) = RESERVE;
    (quota_bytes / fraction).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_a_sixteenth_within_limits() {
        let mebibyte = 1_u64 << 20;
        for (quota, reserve) in [(0, 1), (4, 1), (64, 4), (1 << 10, 64), (1 << 20, 256)] {
            assert_eq!(reserve_bytes(quota * mebibyte), reserve * mebibyte, "{quota} MiB");
        }
    }
}
