//! The thread that prepares chunks, flushes the index and acknowledges what was submitted, so that
//! nobody who appends has to.

use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use umbel_existence::Progress;

use crate::error::Result;
use crate::lock::locked;
use crate::shared::Shared;

/// Where nothing becomes visible for so long, there is time for what can wait.
const QUIET_TIME: Duration = Duration::from_millis(10);
/// After how long to look again whether obsolete files are still pinned.
const SWEEP_TIME: Duration = Duration::from_secs(1);

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
    // Whether the filter left something for when there is nothing else to do, and what was visible
    // when that was last looked at.
    let (mut is_left, mut visible) = (false, 0);
    while let Some(shared) = shared.upgrade() {
        let sweep_again = shared.log.kept.has_some().then_some(SWEEP_TIME);
        let most = is_left.then_some(QUIET_TIME).or(sweep_again);
        let Some(wanted) = shared.bell.wait(most) else { return };
        shared.log.kept.sweep();
        let before = std::mem::replace(&mut visible, shared.visible.position());
        let is_quiet = is_left && !wanted.is_something() && before == visible;
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
            let _ = shared.log.prepare(0, false);
        }
        if wanted.flush {
            let _ = shared.flush_index();
        }
        // One step at a time: whoever appends may need the thread meanwhile.
        if wanted.flush || wanted.step || is_quiet {
            let progress = shared.existence.step(&shared.index).unwrap_or(Progress::Idle);
            is_left = matches!(progress, Progress::Ahead | Progress::MadeWay);
            if progress == Progress::More {
                shared.bell.wants_step();
            }
        }
    }
}
