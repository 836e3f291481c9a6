//! The thread that prepares chunks, flushes the index and acknowledges what was submitted, so that
//! nobody who appends has to.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::lock::locked;
use crate::shared::Shared;

thread_local! {
    /// Whether this is the thread of a store.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Starts the thread.
pub fn start(shared: &Arc<Shared>) -> Result<()> {
    let weak = Arc::downgrade(shared);
    let handle = shared.env.threads.spawn("umbel-events", Box::new(move || run(&weak)))?;
    *locked(&shared.thread) = Some(handle);
    shared.bell.begin();
    shared.bell.wants_step();
    Ok(())
}

/// Ends the thread and waits for it, unless it is the one that calls: whoever is called back may
/// let go of the last handle.
pub fn stop(shared: &Shared) {
    shared.bell.stop();
    let thread = locked(&shared.thread).take();
    if let Some(thread) = thread.filter(|_| !IS_OURS.get()) {
        thread.join();
    }
}

fn run(shared: &Weak<Shared>) {
    IS_OURS.set(true);
    while let Some(shared) = shared.upgrade() {
        let Some(wanted) = shared.bell.wait() else { return };
        // Whoever needs what failed here meets the failure himself: an append that finds no chunk
        // makes one, one that finds the index behind flushes it, one that waits drives.
        if wanted.drive {
            let last = shared.log.last_position().unwrap_or(0);
            if shared.has_queue()
                && let Err(error) = shared.drive(last)
            {
                shared.callbacks.fail(&shared.parts, last, &error);
            } else {
                shared.callbacks.run(&shared.parts);
            }
        }
        if wanted.next && !shared.log.is_prepared() {
            let _ = shared.log.prepare(0);
        }
        if wanted.flush {
            let _ = shared.flush_index();
        }
        // One step at a time: whoever appends may need the thread meanwhile.
        if (wanted.flush || wanted.step) && shared.existence.step(&shared.index).unwrap_or(false) {
            shared.bell.wants_step();
        }
    }
}
