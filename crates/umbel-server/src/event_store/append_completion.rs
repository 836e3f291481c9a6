//! [`AppendCompletion`]: the end of an append, which delivers its result to the call that waits.
//!
//! A batch append call may have hundreds of appends in flight. With one waiter for each append,
//! each result would wake the call separately, on another processor. So [`AppendResults`] collects
//! the results until the call takes them. A thread that completes many appends in a row [defers the
//! wakeup](AppendResults::defer_wakeup) until it has added all results.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use umbel_base::ignore_poison::IgnorePoison;

use tokio::sync::oneshot;
use umbel_events::{Error, WriteResult};

use crate::event_store::long_append_places::LongAppendPlace;

/// The result of an append: a write result for each stream, or an error that names every stream
/// with a conflict.
pub type AppendResult = Result<Vec<WriteResult>, Error>;
/// The result of an append to one stream, as a call with many appends receives it.
pub type BatchedResult = Result<WriteResult, Error>;

/// The end of one append. A completion that is dropped without a result reports that the store is
/// closed.
#[derive(Debug)]
pub struct AppendCompletion {
    /// Receiver of the result; `None` after the result was delivered.
    target: Option<CompletionTarget>,
    /// Place of a long append, which is freed with this value.
    place: Option<Arc<LongAppendPlace>>,
}

#[derive(Debug)]
enum CompletionTarget {
    /// A call with one append.
    Single(oneshot::Sender<AppendResult>),
    /// A call with many numbered appends, each to one stream.
    Batch(u64, Arc<AppendResults>),
}

impl AppendCompletion {
    fn new(target: CompletionTarget) -> AppendCompletion {
        AppendCompletion { target: Some(target), place: None }
    }

    /// Keeps the place of a long append until the append is completed.
    pub fn keep_place(&mut self, place: Option<Arc<LongAppendPlace>>) {
        self.place = place;
    }

    /// Creates the completion of a call's only append, and the receiver of its result.
    pub fn single() -> (AppendCompletion, oneshot::Receiver<AppendResult>) {
        let (sender, result) = oneshot::channel();
        (AppendCompletion::new(CompletionTarget::Single(sender)), result)
    }

    /// Creates the completion of the append with this number.
    pub fn batched(number: u64, results: &Arc<AppendResults>) -> AppendCompletion {
        AppendCompletion::new(CompletionTarget::Batch(number, Arc::clone(results)))
    }

    /// Delivers the result of the append.
    pub fn resolve(mut self, result: AppendResult) {
        self.deliver(result);
    }

    /// The collected results of the batch append call that this append belongs to.
    pub fn batch_results(&self) -> Option<&Arc<AppendResults>> {
        match &self.target {
            Some(CompletionTarget::Batch(_, results)) => Some(results),
            _ => None,
        }
    }

    fn deliver(&mut self, result: AppendResult) {
        self.place = None;
        match self.target.take() {
            // The receiver may have been dropped; the append is done nevertheless.
            Some(CompletionTarget::Single(sender)) => drop(sender.send(result)),
            Some(CompletionTarget::Batch(number, results)) => {
                let result = result.map(|streams| streams[0]).map_err(Error::into_first_conflict);
                results.add(number, result);
            }
            None => {}
        }
    }
}

impl Drop for AppendCompletion {
    fn drop(&mut self) {
        if self.target.is_some() {
            self.deliver(Err(Error::Store(umbel::Error::Closed)));
        }
    }
}

/// Results of one call's appends that the call has not taken yet.
#[derive(Debug, Default)]
pub struct AppendResults {
    state: Mutex<ResultsState>,
}

#[derive(Debug, Default)]
struct ResultsState {
    /// Each result with the number of its append.
    done: Vec<(u64, BatchedResult)>,
    waker: Option<Waker>,
    is_wakeup_deferred: bool,
}

impl AppendResults {
    fn state(&self) -> MutexGuard<'_, ResultsState> {
        // No code panics between two changes of the state.
        self.state.lock().ignore_poison()
    }

    fn add(&self, number: u64, result: BatchedResult) {
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

    /// Appends the results to the vector. If no results are ready, the next result wakes the task.
    pub fn poll_take(
        &self,
        taken: &mut Vec<(u64, BatchedResult)>,
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
