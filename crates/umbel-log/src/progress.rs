//! [`LogProgress`]: how far a log is written and how far it is durable.
//!
//! The thread that writes the log and the one that syncs it share it without a lock, so that
//! neither waits for the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::Result;
use umbel_env::File;

/// Where a log stands.
///
/// INVARIANT: `durable <= end`, and both only grow.
#[derive(Debug)]
pub struct LogProgress {
    file: Arc<dyn File>,
    log_id: u64,
    end: AtomicU64,
    durable: AtomicU64,
}

impl LogProgress {
    pub(crate) fn new(file: Arc<dyn File>, log_id: u64, end: u64, durable: u64) -> LogProgress {
        LogProgress { file, log_id, end: AtomicU64::new(end), durable: AtomicU64::new(durable) }
    }

    /// The log's id.
    pub fn log_id(&self) -> u64 {
        self.log_id
    }

    /// The log's file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The offset behind the last record.
    pub fn end(&self) -> u64 {
        // Whoever syncs after this covers the stores that went before.
        self.end.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Everything below this offset is durable.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }

    /// Notes that a sync which began when [`LogProgress::end`] was `offset` (or more) has
    /// succeeded: the records from now on say that everything below it was durable. Lower offsets
    /// than before change nothing.
    /// REQUIRES: it is true. A mark that lies turns a torn tail into corruption.
    pub fn note_durable(&self, offset: u64) {
        let end = self.end();
        debug_assert!(offset <= end, "only what was written can be durable");
        self.durable.fetch_max(offset.min(end), Ordering::Relaxed);
    }

    /// Makes what was appended so far durable, and notes it.
    ///
    /// # Errors
    /// A failed sync, which is final: what it was to cover may be lost although a later one
    /// succeeds.
    pub fn sync(&self) -> Result<()> {
        let end = self.end();
        self.file.sync()?;
        self.note_durable(end);
        Ok(())
    }
}
