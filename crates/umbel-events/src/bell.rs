//! [`Bell`]: tells the thread in the background what is to be done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock::locked;

/// What is to be done.
#[derive(Debug, Default)]
pub struct Wanted {
    /// To make a chunk ready.
    pub next: bool,
    /// To flush the index.
    pub flush: bool,
    /// To put into the index what was submitted.
    pub drive: bool,
    /// To go on with the existence filter.
    pub step: bool,
    /// To fill the chunk that is written further with zeros.
    pub fill: bool,
    stop: bool,
}

/// Tells the thread in the background what is to be done.
#[derive(Debug, Default)]
pub struct Bell {
    wanted: Mutex<Wanted>,
    changed: Condvar,
    is_heard: AtomicBool,
}

impl Bell {
    fn want(&self, set: impl FnOnce(&mut Wanted) -> &mut bool) {
        if !self.is_heard() {
            return;
        }
        let mut wanted = locked(&self.wanted);
        let flag = set(&mut wanted);
        if !*flag {
            *flag = true;
            self.changed.notify_one();
        }
    }

    /// A chunk should be made ready.
    pub fn wants_next(&self) {
        self.want(|wanted| &mut wanted.next);
    }

    /// The index should be flushed.
    pub fn wants_flush(&self) {
        self.want(|wanted| &mut wanted.flush);
    }

    /// Something was submitted that somebody has to put into the index.
    pub fn wants_drive(&self) {
        self.want(|wanted| &mut wanted.drive);
    }

    /// There is more to be done for the existence filter.
    pub fn wants_step(&self) {
        self.want(|wanted| &mut wanted.step);
    }

    /// The chunk that is written should be filled further with zeros.
    pub fn wants_fill(&self) {
        self.want(|wanted| &mut wanted.fill);
    }

    /// Whether a thread listens.
    pub fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Acquire)
    }

    /// A thread listens from now on.
    pub fn begin(&self) {
        self.is_heard.store(true, Ordering::Release);
    }

    /// Whoever listens is to end.
    pub fn stop(&self) {
        self.is_heard.store(false, Ordering::Release);
        locked(&self.wanted).stop = true;
        self.changed.notify_all();
    }

    /// Waits for something to do; `None` when the thread is to end.
    pub fn wait(&self) -> Option<Wanted> {
        let mut wanted = locked(&self.wanted);
        loop {
            if wanted.stop {
                return None;
            }
            if wanted.next || wanted.flush || wanted.drive || wanted.step || wanted.fill {
                return Some(std::mem::take(&mut *wanted));
            }
            wanted = self.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
