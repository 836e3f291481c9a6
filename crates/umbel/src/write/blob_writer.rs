//! Putting values that are too long to stand among the keys: their files are written first,
//! outside every lock, and made durable; what is committed then are pointers to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::{BlobPointer, Error, Result};
use umbel_blob::file_bytes;

use crate::counters::add;
use crate::store::Store;
use crate::writes::Writes;

/// Files written for a commit that has not been made yet. Dropping it removes them, unless they
/// were kept.
#[derive(Debug)]
pub struct NewBlobs {
    store: Arc<Store>,
    ids: Vec<u64>,
}

impl NewBlobs {
    /// Keeps the store from being closed until this is dropped.
    pub fn begin(store: &Arc<Store>) -> Result<NewBlobs> {
        store.check_writable()?;
        let mut state = store.work_lock();
        if state.stop {
            return Err(Error::Closed);
        }
        state.writers_of_files += 1;
        Ok(NewBlobs { store: Arc::clone(store), ids: Vec::new() })
    }

    /// Writes a value into a file of its own. Its bytes are durable then, but not its name.
    pub fn write(&mut self, value: &[u8]) -> Result<BlobPointer> {
        let store = &self.store;
        let id = store.ids.fetch_add(1, Ordering::Relaxed);
        let pointer = store.context.blobs.write(id, value)?;
        self.ids.push(id);
        add(&store.counters.blob_bytes, file_bytes(pointer.value_bytes));
        Ok(pointer)
    }

    /// Makes the names durable.
    pub fn finish(&self) -> Result<()> {
        let synced = self.store.context.blobs.sync_names();
        // Names of others may be lost with it, so that nobody may go on.
        synced.map_err(|error| self.store.final_error(error))
    }

    /// Says that what points at the files was committed.
    pub fn keep(mut self) {
        self.ids.clear();
    }
}

impl Drop for NewBlobs {
    fn drop(&mut self) {
        // After a panic nobody knows what was committed; the next open does.
        if !std::thread::panicking() {
            self.ids.iter().for_each(|&id| self.store.context.blobs.discard(id));
        }
        self.store.work_lock().writers_of_files -= 1;
        self.store.signal();
    }
}

/// Writes the long values of a batch into files of their own and fills in the pointers to them.
/// `None` where it has none.
pub fn write(store: &Arc<Store>, writes: &mut Writes) -> Result<Option<NewBlobs>> {
    if !writes.has_long_values() {
        return Ok(None);
    }
    let mut blobs = NewBlobs::begin(store)?;
    writes.place_long_values(|value| blobs.write(value))?;
    blobs.finish()?;
    Ok(Some(blobs))
}
