//! [`Callbacks`]: who wants to be called once a position can be seen.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::lock::locked;
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

    /// Calls those whose time has come, in the order of the log; all of them where nothing can be
    /// written any more.
    pub fn run(&self, parts: &Parts) {
        let failed = parts.check_writable().err();
        let behind = match failed {
            Some(_) => (u64::MAX, u64::MAX),
            None => (parts.visible.position(), u64::MAX),
        };
        let ready: Vec<_> = {
            let mut waiting = locked(&self.waiting);
            if waiting.is_empty() {
                return;
            }
            let later = waiting.split_off(&behind);
            std::mem::replace(&mut *waiting, later).into_iter().collect()
        };
        let visible = parts.visible.position();
        for ((position, _), done) in ready {
            match &failed {
                Some(error) if position > visible => done(Err(error.clone())),
                _ => done(Ok(())),
            }
        }
    }

    /// Calls those who wait for a position up to `through` with the error that kept it from being
    /// seen. Whoever waits for a ticket by himself meets it, too.
    pub fn fail(&self, parts: &Parts, through: u64, error: &Error) {
        self.run(parts);
        let waiting = {
            let mut waiting = locked(&self.waiting);
            let later = waiting.split_off(&(through, u64::MAX));
            std::mem::replace(&mut *waiting, later)
        };
        let visible = parts.visible.position();
        for ((position, _), done) in waiting {
            done(if position > visible { Err(error.clone()) } else { Ok(()) });
        }
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").field("waiting", &locked(&self.waiting).len()).finish()
    }
}
