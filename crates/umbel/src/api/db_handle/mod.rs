//! The handle that keeps a store open: its last clone closes it.

use std::sync::Arc;

use crate::lifecycle::close;
use crate::state::store::Store;

/// Keeps a store open. Background threads hold no such handle.
#[derive(Debug)]
pub struct DbHandle {
    /// The store that the handle keeps open.
    pub store: Arc<Store>,
}

impl Drop for DbHandle {
    fn drop(&mut self) {
        if self.store.open.is_forked() {
            // A copy in a forked child: dropping the store would wait for threads that do not exist
            // there, and would remove files that the parent reads.
            std::mem::forget(Arc::clone(&self.store));
            return;
        }
        // A caller that needs the result of the close calls `Db::close`.
        let _ = close::close(&self.store);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
