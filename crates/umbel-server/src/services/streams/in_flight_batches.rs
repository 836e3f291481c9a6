//! [`InFlightBatches`]: the batches of one call that are being written, and their responses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use umbel_base::fail_point;
use umbel_proto::streams::BatchAppendResp;

use crate::event_store::EventStore;
use crate::event_store::append_command::AppendCommand;
use crate::event_store::append_completion::{AppendCompletion, AppendResults, BatchedResult};
use crate::event_store::append_submitter::WaitingAppends;
use crate::limits::BATCHES_IN_FLIGHT_MAX;
use crate::protocol::deadline::Deadline;
use crate::services::streams::batch_response::BatchResponseBuilder;

/// Maximum number of appends submitted to the store together.
const SUBMIT_BATCH_MAX: usize = 64;

/// Maximum number of places, from the first batch without a result to the last one.
const PLACES_MAX: usize = 16 * BATCHES_IN_FLIGHT_MAX;

/// A batch that is, or will be, submitted to the store.
struct PendingBatch {
    response: BatchResponseBuilder,
    bytes: usize,
    deadline: Deadline,
}

/// A response, and the bytes that its batch held.
type CompletedBatch = (BatchAppendResp, usize);

/// Batches of one call that are being written.
#[derive(Default)]
pub struct InFlightBatches {
    /// Responses that are ready.
    completed: VecDeque<CompletedBatch>,
    /// Appends to be submitted to the store.
    outgoing: Vec<(AppendCommand, AppendCompletion)>,
    results: Arc<AppendResults>,
    /// Received results without a response yet.
    received: Vec<(u64, BatchedResult)>,
    /// Batches from the number `first` on; `None` for batches that have a result.
    pending: VecDeque<Option<PendingBatch>>,
    first_number: u64,
    /// Number of pending batches, and how many of them have a deadline.
    count: usize,
    with_deadline: usize,
}

impl InFlightBatches {
    /// Number of batches whose responses were not taken yet.
    pub fn len(&self) -> usize {
        self.count + self.completed.len()
    }

    /// Whether another batch may be added. Batches that were answered before an earlier one keep
    /// their places, so these are limited, too.
    pub fn has_place(&self) -> bool {
        self.len() < BATCHES_IN_FLIGHT_MAX && self.pending.len() < PLACES_MAX
    }

    /// Whether the responses of all batches were taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a batch whose response is ready.
    pub fn complete(&mut self, answer: BatchAppendResp, bytes: usize) {
        self.completed.push_back((answer, bytes));
    }

    /// Adds a batch to be written, which is submitted to the store together with others.
    pub fn enqueue(
        &mut self,
        append: AppendCommand,
        echo: BatchResponseBuilder,
        bytes: usize,
        deadline: Deadline,
    ) {
        let number = self.first_number + self.pending.len() as u64;
        self.pending.push_back(Some(PendingBatch { response: echo, bytes, deadline }));
        self.count += 1;
        self.with_deadline += usize::from(deadline != Deadline::NEVER);
        self.outgoing.push((append, AppendCompletion::batched(number, &self.results)));
    }

    /// Submits the queued appends to the store; with `may_wait`, only when many are queued. If
    /// earlier appends are in `waiting`, or these must wait, they are there afterwards.
    pub fn submit(
        &mut self,
        store: &EventStore,
        may_wait: bool,
        waiting: &mut Option<WaitingAppends>,
    ) {
        if self.outgoing.len() < if may_wait { SUBMIT_BATCH_MAX } else { 1 } {
            return;
        }
        let appends = std::mem::take(&mut self.outgoing);
        match waiting {
            Some(waiting) => waiting.add(appends),
            None => *waiting = store.appends().submit_all(appends),
        }
    }

    /// Returns the next response; `None` if all batches have had their responses.
    pub async fn next(&mut self) -> Option<CompletedBatch> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<CompletedBatch>> {
        loop {
            if let Some(answered) = self.pop_completed() {
                return Poll::Ready(Some(answered));
            }
            if self.count == 0 {
                return Poll::Ready(None);
            }
            if self.results.poll_take(&mut self.received, context).is_pending() {
                return Poll::Pending;
            }
            // They are popped from the end.
            self.received.reverse();
        }
    }

    /// Returns a response that is ready, or that can be built from a received result.
    fn pop_completed(&mut self) -> Option<CompletedBatch> {
        if let Some(answered) = self.completed.pop_front() {
            return Some(answered);
        }
        while let Some((number, result)) = self.received.pop() {
            // A batch missing here was answered at its deadline.
            if let Some(PendingBatch { response: echo, bytes, .. }) = self.remove(number) {
                return Some((echo.complete(result), bytes));
            }
        }
        None
    }

    /// Removes the batch that a result belongs to; `None` if the batch had its response before.
    fn remove(&mut self, number: u64) -> Option<PendingBatch> {
        self.remove_at(self.index_of(number)?)
    }

    fn index_of(&self, number: u64) -> Option<usize> {
        fail_point!("batch-swap-results", |_| self.pending.iter().rposition(Option::is_some));
        usize::try_from(number.checked_sub(self.first_number)?).ok()
    }

    fn remove_at(&mut self, index: usize) -> Option<PendingBatch> {
        let waiting = self.pending.get_mut(index)?.take()?;
        self.count -= 1;
        self.with_deadline -= usize::from(waiting.deadline != Deadline::NEVER);
        while self.pending.front().is_some_and(Option::is_none) {
            self.pending.pop_front();
            self.first_number += 1;
        }
        Some(waiting)
    }

    /// Earliest deadline of the pending batches.
    pub fn next_deadline(&self) -> Deadline {
        if self.with_deadline == 0 {
            return Deadline::NEVER;
        }
        let waiting = self.pending.iter().flatten();
        waiting.fold(Deadline::NEVER, |due, waiting| due.earlier(waiting.deadline))
    }

    /// Builds the response to a batch whose deadline has passed without a result.
    pub fn expire_next(&mut self) -> Option<CompletedBatch> {
        let is_late = |waiting: &Option<PendingBatch>| {
            waiting.as_ref().is_some_and(|waiting| waiting.deadline.has_passed())
        };
        let index = self.pending.iter().position(is_late)?;
        let PendingBatch { response: echo, bytes, .. } = self.remove_at(index)?;
        Some((echo.time_out(), bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message;
    use umbel_events::StreamState;
    use umbel_proto::streams::BatchAppendReq;
    use umbel_proto::streams::batch_append_req::{Expected, Options};
    use umbel_proto::streams::batch_append_resp::Outcome;

    use super::*;
    use crate::grpc::message_limits::RequestMessage;
    use crate::protocol::proto_convert;
    use crate::services::streams::partial_batch::PartialBatch;
    use crate::services::streams::proposed_events::BatchPart;
    use crate::test_support::test_service::{TestService, event, id, run_paused};

    /// Enqueues a batch with one event, to a stream named after its number.
    fn write(
        fixture: &TestService,
        writing: &mut InFlightBatches,
        number: i64,
        deadline: Deadline,
    ) {
        let stream_identifier = Some(proto_convert::stream_identifier(&format!("cart-{number}")));
        let expected_stream_position = Some(Expected::Any(()));
        let options =
            Options { stream_identifier, expected_stream_position, deadline_option: None };
        let (timer, quota) = (fixture.batch_timer(), &fixture.service.append_quota);
        let mut batch = PartialBatch::new(options, deadline, timer, quota);
        let proposed_messages = vec![event(number)];
        let part = BatchAppendReq { proposed_messages, ..BatchAppendReq::default() };
        let part = BatchPart::from_bytes(part.encode_to_vec().into()).unwrap();
        batch.add(part, quota);
        let timer = batch.timer.clone();
        let response = BatchResponseBuilder::new(id(number), &batch.options, timer);
        let bytes = batch.bytes();
        writing.enqueue(batch.into_append().unwrap(), response, bytes, deadline);
    }

    /// Submits appends that need not wait for their turn.
    fn submit(fixture: &TestService, writing: &mut InFlightBatches, may_wait: bool) {
        let mut waiting = None;
        writing.submit(&fixture.service.store, may_wait, &mut waiting);
        assert!(waiting.is_none());
    }

    /// Returns the number of the answered batch, and the code of its failure; 0 for a success.
    fn outcome((answer, bytes): CompletedBatch) -> (i64, i32) {
        assert!(bytes > 0, "the batch's quota is released with its response");
        let number = (0..1000).find(|number| answer.correlation_id == Some(id(*number)));
        let code = match answer.result {
            Some(Outcome::Error(status)) => status.code,
            Some(Outcome::Success(_)) => 0,
            None => panic!("{answer:?}"),
        };
        (number.expect("a known correlation id"), code)
    }

    /// Story: the appender thread released the quota of appends only after it had sent their
    /// results.
    #[test]
    fn each_batch_of_a_group_gets_one_response() {
        run_paused(async {
            let (fixture, mut writing) = (TestService::new(), InFlightBatches::default());
            assert!(writing.next().await.is_none());
            for number in 0..200 {
                write(&fixture, &mut writing, number, Deadline::NEVER);
                submit(&fixture, &mut writing, number % 7 != 0);
            }
            submit(&fixture, &mut writing, false);
            assert_eq!((writing.len(), writing.next_deadline()), (200, Deadline::NEVER));
            for number in 0..200 {
                assert_eq!(outcome(writing.next().await.unwrap()), (number, 0));
            }
            assert!(writing.next().await.is_none() && writing.is_empty());
            assert_eq!(fixture.bytes(), 0);
            let is_missing = |number| {
                fixture.store.stream_state(&format!("cart-{number}")).unwrap()
                    == StreamState::Missing
            };
            assert!(!(0..200).any(is_missing));
        });
    }

    #[test]
    fn timed_out_batch_gets_no_second_response() {
        run_paused(async {
            let (fixture, mut writing) = (TestService::new(), InFlightBatches::default());
            write(&fixture, &mut writing, 1, Deadline::NEVER);
            write(&fixture, &mut writing, 2, Deadline::after(Duration::from_secs(2)));
            write(&fixture, &mut writing, 3, Deadline::after(Duration::from_secs(1)));
            let soon = writing.next_deadline();
            assert!(writing.expire_next().is_none());
            soon.wait().await;
            assert_eq!(outcome(writing.expire_next().unwrap()), (3, 4));
            assert!(writing.expire_next().is_none() && writing.next_deadline() != soon);
            assert_eq!(writing.len(), 2);
            submit(&fixture, &mut writing, false);
            // The result of the timed-out batch still arrives, and is ignored.
            assert_eq!(outcome(writing.next().await.unwrap()), (1, 0));
            assert_eq!(outcome(writing.next().await.unwrap()), (2, 0));
            assert!(writing.next().await.is_none());
            assert_eq!(writing.next_deadline(), Deadline::NEVER);
        });
    }

    /// Story: batches that were answered while an earlier one waited for the disk kept their
    /// places. These had no limit, since an answered batch counts no more.
    #[test]
    fn places_of_answered_batches_are_limited() {
        run_paused(async {
            let (fixture, mut writing) = (TestService::new(), InFlightBatches::default());
            write(&fixture, &mut writing, 0, Deadline::NEVER);
            let mut number = 0;
            while writing.has_place() {
                number += 1;
                write(&fixture, &mut writing, 1, Deadline::NEVER);
                assert!(writing.remove(number).is_some(), "answered");
                writing.outgoing.truncate(1);
            }
            assert_eq!((writing.len(), writing.pending.len()), (1, PLACES_MAX));
            assert!(writing.remove(0).is_some());
            assert!(writing.has_place() && writing.pending.is_empty());
        });
    }

    #[test]
    fn dropped_batch_is_reported_as_closed() {
        run_paused(async {
            let (fixture, mut writing) = (TestService::new(), InFlightBatches::default());
            for number in 0..3 {
                write(&fixture, &mut writing, number, Deadline::NEVER);
            }
            drop(std::mem::take(&mut writing.outgoing));
            for number in 0..3 {
                assert_eq!(outcome(writing.next().await.unwrap()), (number, 14));
            }
            assert!(writing.next().await.is_none());
        });
    }
}
