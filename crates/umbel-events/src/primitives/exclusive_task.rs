//! [`ExclusiveTask`]: a task that one thread at a time runs, and a wait until it is idle.
//!
//! [`Wakeup`](crate::primitives::wakeup::Wakeup) does not fit here: the task may begin again before
//! the waiting thread runs.

use std::sync::{Condvar, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

/// Task that at most one thread runs at a time.
#[derive(Debug, Default)]
pub struct ExclusiveTask {
    is_running: Mutex<bool>,
    ended: Condvar,
}

impl ExclusiveTask {
    /// Starts the task. `false` if another thread runs it.
    pub fn try_begin(&self) -> bool {
        !std::mem::replace(&mut *self.is_running.lock().ignore_poison(), true)
    }

    /// Ends the task.
    pub fn end(&self) {
        *self.is_running.lock().ignore_poison() = false;
        self.ended.notify_all();
    }

    /// Waits until no thread runs the task.
    pub fn wait_until_idle(&self) {
        let taken = self.ended.wait_while(self.is_running.lock().ignore_poison(), |taken| *taken);
        drop(taken.ignore_poison());
    }
}
