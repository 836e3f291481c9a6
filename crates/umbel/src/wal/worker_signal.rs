//! [`WorkerSignal`]: wakes the thread that does the tasks of the WAL.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

/// Signal that wakes the thread of the WAL tasks.
#[derive(Debug, Default)]
pub struct WorkerSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    is_notified: bool,
    is_shut_down: bool,
}

/// Reason why the thread wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// WAL tasks are due.
    Tasks,
    /// No signal came within the wait limit.
    Idle,
    /// The store is being closed, so the thread must end.
    Shutdown,
}

impl WorkerSignal {
    fn state(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().ignore_poison()
    }

    /// Signals that WAL tasks are due.
    pub fn notify(&self) {
        let was_notified = std::mem::replace(&mut self.state().is_notified, true);
        if !was_notified {
            self.changed.notify_one();
        }
    }

    /// Signals that the thread must end.
    pub fn shut_down(&self) {
        self.state().is_shut_down = true;
        self.changed.notify_one();
    }

    /// Waits for a signal, for at most `limit` if it is given.
    pub fn wait(&self, limit: Option<Duration>) -> Wakeup {
        let waits = |state: &mut SignalState| !state.is_notified && !state.is_shut_down;
        let state = self.state();
        let mut state = match limit {
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(state, limit, waits);
                waited.ignore_poison().0
            }
            None => self.changed.wait_while(state, waits).ignore_poison(),
        };
        match (state.is_shut_down, std::mem::take(&mut state.is_notified)) {
            (true, _) => Wakeup::Shutdown,
            (false, true) => Wakeup::Tasks,
            (false, false) => Wakeup::Idle,
        }
    }
}
