//! Puts work off that the disk has no room for, unless a writer waits for it.

use umbel_base::Error;

use crate::shortage::Need;
use crate::store::Store;

/// Puts work off that failed with `error`. `false` where that is another one than a want of room,
/// or a writer waits for the work.
pub fn put_off(store: &Store, need: Need, error: &Error) -> bool {
    if !matches!(error, Error::Full { .. }) || store.poison.is_set() {
        return false;
    }
    let moment = (store.options.env.clock.now(), store.snapshots.visible());
    if !store.work_lock().shortage.put_off(need, error.clone(), moment) {
        return false;
    }
    store.note_put_off(Some(error.clone()));
    // Whoever waits for all work learns of it.
    store.signal();
    true
}

/// A writer that waits for work that is needed: none of it is put off meanwhile.
#[derive(Debug)]
pub struct WaitingWriter<'a>(&'a Store);

impl<'a> WaitingWriter<'a> {
    /// Has what was put off tried at once.
    pub fn new(store: &'a Store) -> WaitingWriter<'a> {
        let is_put_off = {
            let mut state = store.work_lock();
            state.shortage.writers += 1;
            state.shortage.is_put_off(Need::Needed)
        };
        if is_put_off {
            store.signal();
        }
        WaitingWriter(store)
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.0.work_lock().shortage.writers -= 1;
    }
}
