//! [`Snapshot`]: a consistent view across keyspaces.

use std::sync::Arc;

use umbel_base::SequenceNumber;

use crate::handle::Handle;

/// The state of every keyspace at one moment. Versions it can see are kept until it is dropped.
#[derive(Debug)]
pub struct Snapshot {
    handle: Arc<Handle>,
    sequence: SequenceNumber,
}

impl Snapshot {
    pub(crate) fn new(handle: &Arc<Handle>) -> Snapshot {
        let store = &handle.store;
        // In a forked child nothing can be read in it, and nothing is to be waited for.
        let sequence = match store.open.is_forked() {
            true => store.snapshots.visible(),
            false => store.snapshots.hold(),
        };
        Snapshot { handle: Arc::clone(handle), sequence }
    }

    /// The number of the newest write it sees.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether it was taken from this store.
    pub(crate) fn belongs_to(&self, handle: &Arc<Handle>) -> bool {
        Arc::ptr_eq(&self.handle, handle)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Snapshot {
        if !self.handle.store.open.is_forked() {
            self.handle.store.snapshots.hold_again(self.sequence);
        }
        Snapshot { handle: Arc::clone(&self.handle), sequence: self.sequence }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.handle.store.release(self.sequence);
    }
}
