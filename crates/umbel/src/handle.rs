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
        // Whoever wants to know whether closing worked calls `Db::close`.
        let _ = close::close(&self.store);
    }
}
