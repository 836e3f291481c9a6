//! Close of a store, and its end once the node leads no more.

use std::sync::Arc;

use umbel_base::ignore_poison::IgnorePoison;

use crate::open::background_thread;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;

/// Closes the store for every handle.
pub fn close(shared: &Arc<StoreInner>) -> Result<()> {
    close_handles(shared, true)
}

/// Closes the store of a leader that leads no more, for every handle, without a flush.
pub fn end_replicated(shared: &Arc<StoreInner>) -> Result<()> {
    close_handles(shared, false)
}

fn close_handles(shared: &Arc<StoreInner>, flushes: bool) -> Result<()> {
    shared.check_process()?;
    // First, since the rest waits for threads that may wait for a slot.
    shared.visible.gate.end();
    if !shared.open_mark.close() {
        return Ok(());
    }
    close_once(shared, flushes)
}

/// Closes the files. REQUIRES: the store accepts no calls any more.
pub fn close_once(shared: &Arc<StoreInner>, flushes: bool) -> Result<()> {
    background_thread::stop(shared);
    shared.scavenge_task.wait_until_idle();
    shared.scavenge_thread.end();
    let closed = if shared.read_only { Ok(()) } else { close_files(shared, flushes) };
    shared.callbacks.run_visible(&shared.components);
    shared.visible.close();
    let index = shared.index.db().clone().close();
    shared.log.pinned_files.release_lock();
    *shared.pin.lock().ignore_poison() = None;
    closed?;
    Ok(index?)
}

/// Ends the log, and syncs the log and the index. In a replicated store, leaves the log as a kill
/// of the process would, because the slots decide which of its last records exist.
fn close_files(shared: &StoreInner, flushes: bool) -> Result<()> {
    // A running flush must end, and a later one sees that the store is closed. No thread uses the
    // index after its close.
    let _flusher = shared.flush_lock.lock().ignore_poison();
    if let Some(reason) = shared.fatal_error.get() {
        return Err(umbel::Error::ReadOnly(reason.clone()).into());
    }
    // The indexing thread must end: it would overwrite a newer head with an older one.
    let driver = shared.index_lock.lock().ignore_poison();
    let mut appender = shared.appender.lock().ignore_poison();
    let Some(mut ending) = appender.take() else { return Ok(()) };
    let is_replicated = shared.visible.gate.as_replicated().is_some();
    if !is_replicated {
        shared.sync_log()?;
        ending.apply_queue(&shared.components)?;
        ending.chunk_writer.end_chunk(&shared.log)?;
    }
    drop((ending, appender, driver));
    if !is_replicated {
        shared.log.write_chunk_ends()?;
    }
    if let Some(replica) = &shared.replica {
        replica.write()?;
    }
    if !flushes {
        return Ok(());
    }
    let position = shared.visible.position();
    if shared.index.durable_through()? < position {
        shared.index.flush(&shared.log, position)?;
    }
    Ok(shared.existence.flush(&shared.log, position)?)
}
