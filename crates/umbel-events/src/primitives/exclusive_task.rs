//! [`Turn`]: one at a time, and somebody who waits until nobody is at it.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock::locked;

/// Something that one does at a time.
#[derive(Debug, Default)]
pub struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

impl Turn {
    /// Takes the turn. `false` where somebody has it.
    pub fn take(&self) -> bool {
        !std::mem::replace(&mut *locked(&self.taken), true)
    }

    /// Gives it back.
    pub fn give_back(&self) {
        *locked(&self.taken) = false;
        self.free.notify_all();
    }

    /// Waits until nobody has it.
    pub fn wait_until_free(&self) {
        let taken = self.free.wait_while(locked(&self.taken), |taken| *taken);
        drop(taken.unwrap_or_else(PoisonError::into_inner));
    }
}
