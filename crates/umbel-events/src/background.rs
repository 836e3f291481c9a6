//! The thread that prepares chunks, flushes the index and acknowledges what was submitted, so that
//! nobody who appends has to.

use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::lock::locked;
use crate::shared::Shared;

thread_local! {
    /// The store whose thread this is; null where it is nobody's. Only compared.
    static OURS: Cell<*const Shared> = const { Cell::new(ptr::null()) };
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
/// let go of the last handle. The thread of another store waits as everybody does; so callbacks of
/// two stores must not close each other's.
pub fn stop(shared: &Shared) {
    shared.bell.stop();
    let thread = locked(&shared.thread).take();
    if let Some(thread) = thread.filter(|_| !ptr::eq(OURS.get(), shared)) {
        thread.join();
    }
}

fn run(shared: &Weak<Shared>) {
    // What it points to stays where it is for as long as there is the weak handle.
    OURS.set(shared.as_ptr());
    while let Some(shared) = shared.upgrade() {
        let Some(wanted) = shared.bell.wait() else { return };
        // Whoever needs what failed here meets the failure himself: an append that finds no chunk
        // makes one or fills it, one that finds the index behind flushes it, one that waits drives.
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
        if wanted.fill {
            let _ = shared.log.fill_ahead();
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
