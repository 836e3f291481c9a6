//! The handle that keeps a store open: its last clone closes it.

use std::sync::Arc;

use crate::close;
use crate::store::Store;

/// Keeps a store open. Background threads do not hold one.
#[derive(Debug)]
pub struct Handle {
    /// The store.
    pub store: Arc<Store>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.store.open.is_forked() {
            // A copy in a forked child: to drop the store would be to wait for threads that are not
            // there, and to remove files that the parent reads.
            std::mem::forget(Arc::clone(&self.store));
            return;
        }
        // Whoever wants to know whether closing worked calls `Db::close`.
        let _ = close::close(&self.store);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "fork_tests.rs"]
mod tests;
