//! Locks of mutexes whose holder may have panicked: what they guard is right at every moment.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
