//! [`JobClaim`]: a job in progress, for which a close waits.

use crate::state::store::Store;

/// A claim on work, which is released even if the work panics.
pub struct JobClaim<'a> {
    /// The store of the job.
    pub store: &'a Store,
    /// Ids of the keyspaces that are flushed; empty for a compaction.
    pub flushing: Vec<u32>,
    /// Whether a caller's thread does the work, so that it does not count as a background
    /// compaction.
    pub by_caller: bool,
}

impl Drop for JobClaim<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.store.scheduler_lock();
            match self.by_caller {
                _ if !self.flushing.is_empty() => {
                    state.flushing.retain(|id| !self.flushing.contains(id));
                }
                true => state.manual_compactions -= 1,
                false => state.compactions -= 1,
            }
        }
        self.store.signal();
    }
}
