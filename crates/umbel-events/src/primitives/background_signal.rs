//! [`Bell`]: tells the thread in the background what is to be done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use umbel_env::ProcessMark;

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

impl Wanted {
    /// Whether anything is.
    pub fn is_something(&self) -> bool {
        self.next || self.flush || self.drive || self.step || self.fill
    }
}

/// Tells the thread in the background what is to be done.
#[derive(Debug)]
pub struct Bell {
    /// The process whose thread listens. A forked child has no such thread.
    process: ProcessMark,
    wanted: Mutex<Wanted>,
    changed: Condvar,
    is_heard: AtomicBool,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell {
            process: ProcessMark::current(),
            wanted: Mutex::default(),
            changed: Condvar::new(),
            is_heard: AtomicBool::new(false),
        }
    }
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
        self.is_heard.load(Ordering::Acquire) && self.process.is_current()
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

    /// Waits for something to do, where that is said for no longer than this: then there may be
    /// nothing. `None` when the thread is to end.
    pub fn wait(&self, most: Option<Duration>) -> Option<Wanted> {
        let mut wanted = locked(&self.wanted);
        loop {
            if wanted.stop {
                return None;
            }
            if wanted.is_something() {
                return Some(std::mem::take(&mut *wanted));
            }
            wanted = match most {
                None => self.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner),
                Some(most) => {
                    let waited = self.changed.wait_timeout_while(wanted, most, |wanted| {
                        !wanted.stop && !wanted.is_something()
                    });
                    let (mut wanted, _) = waited.unwrap_or_else(PoisonError::into_inner);
                    return (!wanted.stop).then(|| std::mem::take(&mut *wanted));
                }
            };
        }
    }
}
