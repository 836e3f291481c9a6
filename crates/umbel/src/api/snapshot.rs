//! [`Snapshot`]: a consistent state of all keyspaces.

use std::sync::Arc;

use umbel_base::SequenceNumber;

use crate::api::db_handle::DbHandle;

/// State of all keyspaces at one sequence number. The store keeps the versions that a snapshot can
/// see until the snapshot is dropped.
#[derive(Debug)]
pub struct Snapshot {
    handle: Arc<DbHandle>,
    sequence: SequenceNumber,
}

impl Snapshot {
    pub(crate) fn new(handle: &Arc<DbHandle>) -> Snapshot {
        let store = &handle.store;
        // In a forked child the snapshot cannot be read, and taking it must not wait.
        let sequence = match store.open.is_forked() {
            true => store.snapshots.visible(),
            false => store.snapshots.acquire(),
        };
        Snapshot { handle: Arc::clone(handle), sequence }
    }

    /// Sequence number of the newest write that the snapshot sees.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the snapshot was taken from the store of `handle`.
    pub(crate) fn belongs_to(&self, handle: &Arc<DbHandle>) -> bool {
        Arc::ptr_eq(&self.handle, handle)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Snapshot {
        if !self.handle.store.open.is_forked() {
            self.handle.store.snapshots.acquire_again(self.sequence);
        }
        Snapshot { handle: Arc::clone(&self.handle), sequence: self.sequence }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.handle.store.release(self.sequence);
    }
}
