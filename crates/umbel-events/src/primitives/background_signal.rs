//! [`BackgroundSignal`]: requests work from the background thread.
//!
//! [`Wakeup`](crate::primitives::wakeup::Wakeup) does not fit here: the signal names the requested
//! work, and the background thread waits repeatedly.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_env::ProcessMark;

/// Work that was requested of the background thread.
#[derive(Debug, Default)]
pub struct PendingWork {
    /// Create the next chunk.
    pub prepare_chunk: bool,
    /// Flush the index.
    pub flush: bool,
    /// Index the submitted appends.
    pub index_queue: bool,
    /// Continue to fill the existence filter.
    pub existence_step: bool,
    /// Fill the active chunk further with zeros.
    pub fill_zeros: bool,
    stop: bool,
}

impl PendingWork {
    /// Whether any work is pending.
    pub fn is_nonempty(&self) -> bool {
        self.prepare_chunk
            || self.flush
            || self.index_queue
            || self.existence_step
            || self.fill_zeros
    }
}

/// Requests work from the background thread.
#[derive(Debug)]
pub struct BackgroundSignal {
    /// Process of the background thread. A forked child has no such thread.
    process: ProcessMark,
    pending: Mutex<PendingWork>,
    changed: Condvar,
    has_listener: AtomicBool,
}

impl Default for BackgroundSignal {
    fn default() -> BackgroundSignal {
        BackgroundSignal {
            process: ProcessMark::current(),
            pending: Mutex::default(),
            changed: Condvar::new(),
            has_listener: AtomicBool::new(false),
        }
    }
}

impl BackgroundSignal {
    fn request(&self, set: impl FnOnce(&mut PendingWork) -> &mut bool) {
        if !self.has_listener() {
            return;
        }
        let mut wanted = self.pending.lock().ignore_poison();
        let flag = set(&mut wanted);
        if !*flag {
            *flag = true;
            self.changed.notify_one();
        }
    }

    /// Requests the creation of the next chunk.
    pub fn request_chunk(&self) {
        self.request(|wanted| &mut wanted.prepare_chunk);
    }

    /// Requests a flush of the index.
    pub fn request_flush(&self) {
        self.request(|wanted| &mut wanted.flush);
    }

    /// Requests indexing of submitted appends.
    pub fn request_indexing(&self) {
        self.request(|wanted| &mut wanted.index_queue);
    }

    /// Requests another step of the existence filter.
    pub fn request_existence_step(&self) {
        self.request(|wanted| &mut wanted.existence_step);
    }

    /// Requests that the active chunk is filled further with zeros.
    pub fn request_fill(&self) {
        self.request(|wanted| &mut wanted.fill_zeros);
    }

    /// Whether a background thread listens.
    pub fn has_listener(&self) -> bool {
        self.has_listener.load(Ordering::Acquire) && self.process.is_current()
    }

    /// Records that a background thread listens from now on.
    pub fn attach_listener(&self) {
        self.has_listener.store(true, Ordering::Release);
    }

    /// Requests that the background thread ends.
    pub fn stop(&self) {
        self.has_listener.store(false, Ordering::Release);
        self.pending.lock().ignore_poison().stop = true;
        self.changed.notify_all();
    }

    /// Waits for work, at most for `timeout` if given; after a timeout, the returned work is empty.
    /// `None` if the thread must end.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<PendingWork> {
        let mut wanted = self.pending.lock().ignore_poison();
        loop {
            if wanted.stop {
                return None;
            }
            if wanted.is_nonempty() {
                return Some(std::mem::take(&mut *wanted));
            }
            wanted = match timeout {
                None => self.changed.wait(wanted).ignore_poison(),
                Some(timeout) => {
                    let waited = self.changed.wait_timeout_while(wanted, timeout, |wanted| {
                        !wanted.stop && !wanted.is_nonempty()
                    });
                    let (mut wanted, _) = waited.ignore_poison();
                    return (!wanted.stop).then(|| std::mem::take(&mut *wanted));
                }
            };
        }
    }
}
