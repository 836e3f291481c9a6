//! [`Callbacks`]: who wants to be called once a position can be seen.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::lock::locked;
use crate::panics::caught;
use crate::parts::Parts;

/// What is called.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// Who wants to be called once a position can be seen.
#[derive(Default)]
pub struct Callbacks {
    waiting: Mutex<BTreeMap<(u64, u64), Done>>,
    count: Mutex<u64>,
}

impl Callbacks {
    /// Has `done` called once `position` can be seen.
    pub fn add(&self, position: u64, done: Done) {
        let number = {
            let mut count = locked(&self.count);
            *count += 1;
            *count
        };
        locked(&self.waiting).insert((position, number), done);
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        locked(&self.waiting).is_empty()
    }

    /// Calls those whose time has come, in the order of the log; all of them where nothing can be
    /// written any more.
    pub fn run(&self, parts: &Parts) {
        match parts.check_writable() {
            Ok(()) => self.call(parts, parts.visible.position(), None),
            Err(error) => self.call(parts, u64::MAX, Some(&error)),
        }
    }

    /// Calls those who wait for a position up to `through` with the error that kept it from being
    /// seen. Whoever waits for a ticket by himself meets it, too.
    pub fn fail(&self, parts: &Parts, through: u64, error: &Error) {
        self.run(parts);
        self.call(parts, through, Some(error));
    }

    /// Calls those who wait for a position up to `through`, in the order of the log: with the
    /// error, where there is one, if their position cannot be seen.
    fn call(&self, parts: &Parts, through: u64, failed: Option<&Error>) {
        let ready = {
            let mut waiting = locked(&self.waiting);
            if waiting.is_empty() {
                return;
            }
            let later = waiting.split_off(&(through, u64::MAX));
            std::mem::replace(&mut *waiting, later)
        };
        let visible = parts.visible.position();
        for ((position, _), done) in ready {
            let outcome = match failed {
                Some(error) if position > visible => Err(error.clone()),
                _ => Ok(()),
            };
            caught(|| done(outcome));
        }
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").field("waiting", &locked(&self.waiting).len()).finish()
    }
}
