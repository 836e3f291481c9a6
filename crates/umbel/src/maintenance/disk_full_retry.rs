//! Puts work off that the disk has no room for.

use umbel_base::Error;

use crate::shortage::Need;
use crate::store::Store;

/// Puts work off that failed with `error`. `false` where that is another one than a want of room,
/// or is final.
pub fn put_off(store: &Store, need: Need, error: &Error) -> bool {
    if !matches!(error, Error::Full { .. }) || store.poison.is_set() {
        return false;
    }
    let moment = (store.options.env.clock.now(), store.snapshots.visible());
    store.work_lock().shortage.put_off(need, error.clone(), moment);
    store.note_put_off(Some(error.clone()));
    // Threads that wait for all work, or for this, are woken.
    store.signal();
    true
}

/// A writer who waits for work that is needed.
#[derive(Debug)]
pub struct WaitingWriter<'a> {
    store: &'a Store,
    refusals: u64,
}

impl<'a> WaitingWriter<'a> {
    /// Has what was put off tried at once.
    pub fn new(store: &'a Store) -> WaitingWriter<'a> {
        let (refusals, was_put_off) = store.work_lock().shortage.await_needed();
        if was_put_off {
            store.signal();
        }
        WaitingWriter { store, refusals }
    }

    /// Why the work found no room since.
    pub fn refusal(&self) -> Option<Error> {
        self.store.work_lock().shortage.refusal_since(self.refusals).cloned()
    }
}
