//! Postpones flushes and compactions that failed on a full disk.

use umbel_base::Error;

use crate::state::disk_full_backoff::Priority;
use crate::state::store::Store;

/// Postpones work that failed with `error`. Returns `false` if `error` is not a full disk, or the
/// store has a fatal error.
pub fn back_off_if_full(store: &Store, need: Priority, error: &Error) -> bool {
    if !matches!(error, Error::DiskFull { .. }) || store.fatal_error.is_set() {
        return false;
    }
    let moment = (store.options.env.clock.now(), store.snapshots.visible());
    store.scheduler_lock().disk_full_backoff.note_failure(need, error.clone(), moment);
    store.fatal_error.note_postponed(Some(error.clone()));
    // Wakes threads that wait for all work, or for this.
    store.signal();
    true
}

/// A writer that waits for required work.
#[derive(Debug)]
pub struct StalledWriter<'a> {
    store: &'a Store,
    refusals: u64,
}

impl<'a> StalledWriter<'a> {
    /// Registers the waiting writer, and makes postponed work run at once.
    pub fn new(store: &'a Store) -> StalledWriter<'a> {
        let (refusals, was_postponed) = store.scheduler_lock().disk_full_backoff.retry_required();
        if was_postponed {
            store.signal();
        }
        StalledWriter { store, refusals }
    }

    /// Returns the error of the latest attempt that found the disk full.
    pub fn refusal(&self) -> Option<Error> {
        self.store.scheduler_lock().disk_full_backoff.failure_since(self.refusals).cloned()
    }
}
