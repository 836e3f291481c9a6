//! The thread that prepares chunks, flushes the index and acknowledges appends, so that appending
//! threads need not.

use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_existence::StepProgress;

use crate::shared_store_state::StoreInner;
use crate::types::error::Result;

/// Time without new visible events after which optional work can run.
const IDLE_TIME: Duration = Duration::from_millis(10);
/// Interval of the checks whether obsolete files are still pinned.
const PIN_RECHECK_TIME: Duration = Duration::from_secs(1);

thread_local! {
    /// The store whose background thread this is; null in other threads. The pointer is only
    /// compared.
    static BACKGROUND_OF: Cell<*const StoreInner> = const { Cell::new(ptr::null()) };
}

/// Starts the background thread of a store.
pub fn start(shared: &Arc<StoreInner>) -> Result<()> {
    let weak = Arc::downgrade(shared);
    let handle = shared.env.threads.spawn("umbel-events", Box::new(move || run(&weak)))?;
    *shared.background_thread.lock().ignore_poison() = Some(handle);
    shared.background.attach_listener();
    shared.background.request_existence_step();
    Ok(())
}

/// Ends the background thread and waits for its end, unless the caller is that thread: a callback
/// may drop the last handle. The background thread of another store waits like any other thread. So
/// callbacks of two stores must not close each other's store.
pub fn stop(shared: &StoreInner) {
    shared.background.stop();
    let thread = shared.background_thread.lock().ignore_poison().take();
    if let Some(thread) = thread.filter(|_| !ptr::eq(BACKGROUND_OF.get(), shared)) {
        thread.join();
    }
}

fn run(shared: &Weak<StoreInner>) {
    // The pointer stays valid for as long as the weak handle exists.
    BACKGROUND_OF.set(shared.as_ptr());
    // Whether the filter left work for idle time, and the visible position at the last check.
    let (mut is_left, mut visible) = (false, 0);
    while let Some(shared) = shared.upgrade() {
        let sweep_again = shared.log.pinned_files.is_nonempty().then_some(PIN_RECHECK_TIME);
        let timeout = is_left.then_some(IDLE_TIME).or(sweep_again);
        let Some(wanted) = shared.background.wait(timeout) else { return };
        shared.log.pinned_files.remove_unpinned();
        let before = std::mem::replace(&mut visible, shared.visible.position());
        let is_quiet = is_left && !wanted.is_nonempty() && before == visible;
        // Threads that need the failed work repeat it and get the error. An append without a chunk
        // prepares or fills one, an append with a lagging index flushes it, a waiting thread
        // applies the queue.
        if wanted.index_queue {
            let last = shared.log.last_position().unwrap_or(0);
            if shared.has_queued_appends()
                && let Err(error) = shared.apply_without_slots(last)
            {
                shared.callbacks.fail(&shared.components, last, &error);
            } else {
                shared.callbacks.run_visible(&shared.components);
            }
        }
        if wanted.fill_zeros {
            let _ = shared.log.fill_ahead();
        }
        if wanted.prepare_chunk && !shared.log.has_next_chunk() {
            let _ = shared.log.prepare_chunk(0, false);
        }
        if wanted.flush {
            let _ = shared.damage.record(shared.flush_without_slots());
        }
        // One step at a time: an append may need the thread meanwhile.
        if wanted.flush || wanted.existence_step || is_quiet {
            let progress = shared.existence.step(&shared.index).unwrap_or(StepProgress::Idle);
            is_left = matches!(progress, StepProgress::Ahead | StepProgress::Yielded);
            if progress == StepProgress::More {
                shared.background.request_existence_step();
            }
        }
    }
}
