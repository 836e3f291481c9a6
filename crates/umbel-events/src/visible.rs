//! [`Visible`]: up to which position readers see, and who wants to know when that changes.
//!
//! INVARIANT: an event is visible only once it is acknowledged at the store's durability level, and
//! every event before it is visible then, too.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use crate::lock::locked;

/// What is called when more can be seen, with the position of the last event.
type Callback = dyn Fn(u64) + Send + Sync;

/// Up to which position readers see.
#[derive(Default)]
pub struct Visible {
    position: AtomicU64,
    waiters: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
    watches: RwLock<Vec<Weak<Callback>>>,
    watching: AtomicUsize,
}

/// Calls something whenever more can be seen, for as long as it lives.
pub struct Watch {
    _callback: Arc<Callback>,
}

impl Visible {
    /// The position of the last event that can be seen; 0 where there is none.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::SeqCst)
    }

    /// Lets everybody see up to `position`.
    pub fn advance(&self, position: u64) {
        self.position.fetch_max(position, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            // Whoever looks at the position and then waits holds the lock between the two.
            drop(locked(&self.lock));
            self.changed.notify_all();
        }
        if self.watching.load(Ordering::SeqCst) > 0 {
            self.call(position);
        }
    }

    fn call(&self, position: u64) {
        let watches = self.watches.read().unwrap_or_else(PoisonError::into_inner);
        let callbacks: Vec<_> = watches.iter().filter_map(Weak::upgrade).collect();
        let has_gone = callbacks.len() < watches.len();
        drop(watches);
        callbacks.iter().for_each(|callback| callback(position));
        if has_gone {
            let mut watches = self.watches.write().unwrap_or_else(PoisonError::into_inner);
            watches.retain(|watch| watch.strong_count() > 0);
            self.watching.store(watches.len(), Ordering::SeqCst);
        }
    }

    /// Wakes whoever waits, although nothing can be seen that could not.
    pub fn wake(&self) {
        drop(locked(&self.lock));
        self.changed.notify_all();
        self.call(self.position());
    }

    /// Waits until more than `position` can be seen, or the time has passed, or somebody wakes it.
    /// Returns what can be seen then.
    pub fn wait_beyond(&self, position: u64, most: Duration) -> u64 {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let guard = locked(&self.lock);
        if self.position() <= position {
            let _ = self.changed.wait_timeout(guard, most);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        self.position()
    }

    /// Calls `callback` whenever more can be seen, until the watch is dropped.
    pub fn watch(&self, callback: impl Fn(u64) + Send + Sync + 'static) -> Watch {
        let callback: Arc<Callback> = Arc::new(callback);
        let mut watches = self.watches.write().unwrap_or_else(PoisonError::into_inner);
        watches.push(Arc::downgrade(&callback));
        self.watching.store(watches.len(), Ordering::SeqCst);
        Watch { _callback: callback }
    }
}

impl fmt::Debug for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Visible").field(&self.position()).finish()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
