//! [`Lease`]: a state of the store that is kept for a while and no longer.
//!
//! What a snapshot shows stays in the store, and a client that takes nothing of a scan would keep
//! it there for ever. So the state is let go of after a time, whether or not anybody asks for it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;
use umbel::Snapshot;

use crate::deadline::Deadline;

/// A state that is kept until a moment.
#[derive(Debug)]
pub struct Lease {
    kept: Arc<Mutex<Option<Snapshot>>>,
    sequence: u64,
    ends: JoinHandle<()>,
}

impl Lease {
    /// Keeps this state until then.
    pub fn new(snapshot: Snapshot, until: Deadline) -> Lease {
        let sequence = snapshot.sequence();
        let kept = Arc::new(Mutex::new(Some(snapshot)));
        let ending = Arc::clone(&kept);
        let ends = tokio::spawn(async move {
            until.passed().await;
            ending.lock().unwrap_or_else(PoisonError::into_inner).take();
        });
        Lease { kept, sequence, ends }
    }

    /// The state, while it is kept.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest write that it shows.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ends.abort();
    }
}
