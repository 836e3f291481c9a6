//! [`AppendResults`]: the results of a call's appends, collected until the call takes them.
//!
//! A batch append call may have hundreds of appends in flight. With one waiter for each, each
//! result would wake the call separately, on another processor. A thread that completes many in a
//! row therefore [defers the wakeup](AppendResults::defer_wakeup) until all results are there.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_events::{Error, WriteResult};

/// The result of an append.
pub type AppendResult = Result<WriteResult, Error>;

/// Results of one call's appends that the call has not taken yet.
#[derive(Debug, Default)]
pub struct AppendResults {
    state: Mutex<ResultsState>,
}

#[derive(Debug, Default)]
struct ResultsState {
    /// Each result with the number of its append.
    done: Vec<(u64, AppendResult)>,
    waker: Option<Waker>,
    is_wakeup_deferred: bool,
}

impl AppendResults {
    fn state(&self) -> MutexGuard<'_, ResultsState> {
        // No code panics between two changes of the state.
        self.state.lock().ignore_poison()
    }

    fn add(&self, number: u64, result: AppendResult) {
        let mut state = self.state();
        state.done.push((number, result));
        let waker = if state.is_wakeup_deferred { None } else { state.waker.take() };
        drop(state);
        wake(waker);
    }

    /// Defers the call's wakeup until the returned guard is dropped.
    pub fn defer_wakeup(&self) -> DeferredWakeup<'_> {
        self.state().is_wakeup_deferred = true;
        DeferredWakeup(self)
    }

    /// Appends the results to the vector. Where there are none, the next result wakes the task.
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

/// A guard that defers the call's wakeup while more results are added.
pub struct DeferredWakeup<'a>(&'a AppendResults);

impl Drop for DeferredWakeup<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_wakeup_deferred = false;
        let waker = if state.done.is_empty() { None } else { state.waker.take() };
        drop(state);
        wake(waker);
    }
}

/// Sends the result of one append. On drop without a result it reports that the store is closed.
#[derive(Debug)]
pub struct ResultSender {
    number: u64,
    /// `None` after the result was sent.
    outcomes: Option<Arc<AppendResults>>,
}

impl ResultSender {
    /// A sender for the append with this number.
    pub fn new(number: u64, outcomes: &Arc<AppendResults>) -> ResultSender {
        ResultSender { number, outcomes: Some(Arc::clone(outcomes)) }
    }

    /// Sends the result.
    pub fn send(mut self, result: AppendResult) {
        if let Some(outcomes) = self.outcomes.take() {
            outcomes.add(self.number, result);
        }
    }

    /// The destination of the result.
    pub fn results(&self) -> Option<&Arc<AppendResults>> {
        self.outcomes.as_ref()
    }
}

impl Drop for ResultSender {
    fn drop(&mut self) {
        if let Some(outcomes) = self.outcomes.take() {
            outcomes.add(self.number, Err(Error::Store(umbel::Error::Closed)));
        }
    }
}
