//! Puts of long values: the values' files are written and synced first, outside every lock. The
//! commit then contains pointers to the files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::{BlobPointer, Error, Result};
use umbel_blob::file_bytes;

use crate::state::store::Store;
use crate::state::write_batch::WriteBatch;
use crate::thread_counters::add;

/// Files of long values for a commit that is still pending. Dropping a `PendingBlobs` removes its
/// files, unless [`PendingBlobs::keep`] was called.
#[derive(Debug)]
pub struct PendingBlobs {
    store: Arc<Store>,
    ids: Vec<u64>,
}

impl PendingBlobs {
    /// Begins writing files, and keeps the store from being closed until the result is dropped.
    fn begin(store: &Arc<Store>) -> Result<PendingBlobs> {
        store.check_writable()?;
        let mut state = store.scheduler_lock();
        if state.stop {
            return Err(Error::Closed);
        }
        state.blob_writers += 1;
        Ok(PendingBlobs { store: Arc::clone(store), ids: Vec::new() })
    }

    /// Writes a value into a file of its own. Syncs the file's bytes, but not its name.
    fn write_blob(&mut self, value: &[u8]) -> Result<BlobPointer> {
        let store = &self.store;
        let id = store.ids.fetch_add(1, Ordering::Relaxed);
        let pointer = store.context.blobs.write(id, value)?;
        self.ids.push(id);
        add(&store.counters.blob_bytes, file_bytes(pointer.value_bytes));
        Ok(pointer)
    }

    /// Syncs the names of the files.
    fn finish(&self) -> Result<()> {
        let synced = self.store.options.env.files.sync_dir(&self.store.folder);
        // Names of other files may be lost with it, so the store refuses further writes.
        synced.map_err(|error| self.store.set_fatal_error(error))
    }

    /// Keeps the files, since the pointers to them were committed.
    pub fn keep(&mut self) {
        self.ids.clear();
    }
}

impl Drop for PendingBlobs {
    fn drop(&mut self) {
        // After a panic it is unknown which pointers were committed; the next open determines it.
        if !std::thread::panicking() {
            self.ids.iter().for_each(|&id| self.store.context.blobs.remove_unreferenced(id));
        }
        self.store.scheduler_lock().blob_writers -= 1;
        self.store.signal();
    }
}

/// Writes a long value into a file of its own, and returns the pointer to the value.
pub fn write_blob(store: &Arc<Store>, value: &[u8]) -> Result<(PendingBlobs, BlobPointer)> {
    let mut blobs = PendingBlobs::begin(store)?;
    let pointer = blobs.write_blob(value)?;
    blobs.finish()?;
    Ok((blobs, pointer))
}

/// Writes the long values of a batch into files of their own, and stores the pointers to them in
/// the batch. Returns `None` if the batch has no long values.
pub fn write_blobs(store: &Arc<Store>, writes: &mut WriteBatch) -> Result<Option<PendingBlobs>> {
    if !writes.has_long_values() {
        return Ok(None);
    }
    let mut blobs = PendingBlobs::begin(store)?;
    writes.place_long_values(|value| blobs.write_blob(value))?;
    blobs.finish()?;
    Ok(Some(blobs))
}
