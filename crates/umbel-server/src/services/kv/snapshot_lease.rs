//! [`SnapshotLease`]: a snapshot that is released after a time limit.
//!
//! A snapshot keeps old versions of entries in the store, and a client that takes nothing of a scan
//! would keep them for ever. So the snapshot is released at its deadline, even if the scan is not
//! polled.

use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use tokio::task::JoinHandle;
use umbel::Snapshot;

use crate::protocol::deadline::Deadline;

/// A snapshot with a deadline.
#[derive(Debug)]
pub struct SnapshotLease {
    leased: Arc<Mutex<Option<Snapshot>>>,
    sequence: u64,
    expiry: JoinHandle<()>,
}

impl SnapshotLease {
    /// Keeps this snapshot until `until`.
    pub fn new(snapshot: Snapshot, until: Deadline) -> SnapshotLease {
        let sequence = snapshot.sequence();
        let kept = Arc::new(Mutex::new(Some(snapshot)));
        let ending = Arc::clone(&kept);
        let ends = tokio::spawn(async move {
            until.wait().await;
            ending.lock().ignore_poison().take();
        });
        SnapshotLease { leased: kept, sequence, expiry: ends }
    }

    /// The snapshot, until it is released.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.leased.lock().ignore_poison().clone()
    }

    /// Sequence number of the newest write in the snapshot.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Drop for SnapshotLease {
    fn drop(&mut self) {
        self.expiry.abort();
    }
}
