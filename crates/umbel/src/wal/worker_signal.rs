//! [`Bell`]: calls the thread that does the chores of the log.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Wakes one thread.
#[derive(Debug, Default)]
pub struct Bell {
    state: Mutex<Rung>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    is_rung: bool,
    is_over: bool,
}

/// Why the thread wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// There are chores.
    Chores,
    /// Nobody called for as long as the thread was ready to wait.
    Quiet,
    /// The thread is to end.
    Over,
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, Rung> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that there are chores.
    pub fn ring(&self) {
        let was_rung = std::mem::replace(&mut self.state().is_rung, true);
        if !was_rung {
            self.rung.notify_one();
        }
    }

    /// Says that the thread is to end.
    pub fn end(&self) {
        self.state().is_over = true;
        self.rung.notify_one();
    }

    /// Waits for a call, for `limit` at most where one is given.
    pub fn wait(&self, limit: Option<Duration>) -> Call {
        let waits = |state: &mut Rung| !state.is_rung && !state.is_over;
        let state = self.state();
        let mut state = match limit {
            Some(limit) => {
                let waited = self.rung.wait_timeout_while(state, limit, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.rung.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner),
        };
        match (state.is_over, std::mem::take(&mut state.is_rung)) {
            (true, _) => Call::Over,
            (false, true) => Call::Chores,
            (false, false) => Call::Quiet,
        }
    }
}
