//! [`Outcomes`]: what the appends of one call come to, gathered until the call looks.
//!
//! A call of batches may have hundreds of appends under way. Were each of them waited for by
//! itself, each would wake the call by itself, on another processor; so whoever answers many in a
//! row [holds](Outcomes::hold) the call back until they are there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use umbel_events::{Appended, Error};

/// What an append comes to.
pub type AppendResult = Result<Appended, Error>;

/// What the appends of one call came to since it looked last.
#[derive(Debug, Default)]
pub struct Outcomes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Each with the number of its append.
    done: Vec<(u64, AppendResult)>,
    waker: Option<Waker>,
    is_held: bool,
}

impl Outcomes {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes of it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: u64, result: AppendResult) {
        let mut state = self.state();
        state.done.push((number, result));
        let waker = if state.is_held { None } else { state.waker.take() };
        drop(state);
        wake(waker);
    }

    /// Has the call look only once what this gives is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.state().is_held = true;
        Held(self)
    }

    /// Moves what there is behind what is in `taken`, or has the task of `context` woken once there
    /// is something.
    pub fn poll_take(
        &self,
        taken: &mut Vec<(u64, AppendResult)>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut state = self.state();
        if state.done.is_empty() {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        taken.append(&mut state.done);
        Poll::Ready(())
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Somebody who has more outcomes to add before the call shall look.
pub struct Held<'a>(&'a Outcomes);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_held = false;
        let waker = if state.done.is_empty() { None } else { state.waker.take() };
        drop(state);
        wake(waker);
    }
}

/// Who tells what one append came to. Dropped, he tells that the store was closed before.
#[derive(Debug)]
pub struct Teller {
    number: u64,
    /// `None` once he has told.
    outcomes: Option<Arc<Outcomes>>,
}

impl Teller {
    /// One for the append with this number.
    pub fn new(number: u64, outcomes: &Arc<Outcomes>) -> Teller {
        Teller { number, outcomes: Some(Arc::clone(outcomes)) }
    }

    /// Tells it.
    pub fn tell(mut self, result: AppendResult) {
        if let Some(outcomes) = self.outcomes.take() {
            outcomes.add(self.number, result);
        }
    }

    /// Whom he tells.
    pub fn outcomes(&self) -> Option<&Arc<Outcomes>> {
        self.outcomes.as_ref()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if let Some(outcomes) = self.outcomes.take() {
            outcomes.add(self.number, Err(Error::Store(umbel::Error::Closed)));
        }
    }
}
