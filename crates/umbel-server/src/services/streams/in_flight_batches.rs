//! [`Writing`]: the batches of one call that are being written, and their answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use umbel_proto::streams::BatchAppendResp;

use crate::batch_outcome::Echo;
use crate::deadline::Deadline;
use crate::outcomes::{AppendResult, Outcomes, Teller};
use crate::store::{Append, EventStore};

/// How many appends are handed to the store together.
const HANDED_TOGETHER: usize = 64;

/// A batch that the store has, or will have.
struct Waiting {
    echo: Echo,
    bytes: usize,
    deadline: Deadline,
}

/// An answer, and the bytes that its batch held.
type Answered = (BatchAppendResp, usize);

/// The batches of one call that are being written.
#[derive(Default)]
pub struct Writing {
    /// Answers that are known.
    known: VecDeque<Answered>,
    /// What is to be handed to the store.
    outgoing: Vec<(Append, Teller)>,
    outcomes: Arc<Outcomes>,
    /// Outcomes that were taken and whose answers were not.
    taken: Vec<(u64, AppendResult)>,
    /// Batches whose outcomes are to come, from the one numbered `first` on; `None` for those that
    /// have theirs.
    waiting: VecDeque<Option<Waiting>>,
    first: u64,
    /// How many are waiting, and how many of them not for ever.
    count: usize,
    limited: usize,
}

impl Writing {
    /// How many batches have no answer yet that was taken.
    pub fn len(&self) -> usize {
        self.count + self.known.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a batch that has its answer.
    pub fn answer(&mut self, answer: BatchAppendResp, bytes: usize) {
        self.known.push_back((answer, bytes));
    }

    /// Takes a batch that is to be written; it is handed to the store with others.
    pub fn write(&mut self, append: Append, echo: Echo, bytes: usize, deadline: Deadline) {
        let number = self.first + self.waiting.len() as u64;
        self.waiting.push_back(Some(Waiting { echo, bytes, deadline }));
        self.count += 1;
        self.limited += usize::from(deadline != Deadline::NEVER);
        self.outgoing.push((append, Teller::new(number, &self.outcomes)));
    }

    /// Hands what is to be written to the store; where it `may_wait`, only if it is much.
    pub fn hand_on(&mut self, store: &EventStore, may_wait: bool) {
        if self.outgoing.len() >= if may_wait { HANDED_TOGETHER } else { 1 } {
            store.submit_all(std::mem::take(&mut self.outgoing));
        }
    }

    /// The next answer; `None` where all batches have theirs.
    pub async fn next(&mut self) -> Option<Answered> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Answered>> {
        loop {
            if let Some(answered) = self.pop() {
                return Poll::Ready(Some(answered));
            }
            if self.count == 0 {
                return Poll::Ready(None);
            }
            if self.outcomes.poll_take(&mut self.taken, context).is_pending() {
                return Poll::Pending;
            }
            // They are taken from the end.
            self.taken.reverse();
        }
    }

    /// An answer that is known or whose outcome was taken.
    fn pop(&mut self) -> Option<Answered> {
        if let Some(answered) = self.known.pop_front() {
            return Some(answered);
        }
        while let Some((number, result)) = self.taken.pop() {
            // Without a batch it was answered when its time was up.
            if let Some(Waiting { echo, bytes, .. }) = self.remove(number) {
                return Some((echo.outcome(result), bytes));
            }
        }
        None
    }

    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let waiting = self.waiting.get_mut(index)?.take()?;
        self.count -= 1;
        self.limited -= usize::from(waiting.deadline != Deadline::NEVER);
        while self.waiting.front().is_some_and(Option::is_none) {
            self.waiting.pop_front();
            self.first += 1;
        }
        Some(waiting)
    }

    /// Until when nobody has to be told that his time is up.
    pub fn due(&self) -> Deadline {
        if self.limited == 0 {
            return Deadline::NEVER;
        }
        let waiting = self.waiting.iter().flatten();
        waiting.fold(Deadline::NEVER, |due, waiting| due.earlier(waiting.deadline))
    }

    /// The answer to a batch whose time is up, and whose outcome is not known.
    pub fn time_out(&mut self) -> Option<Answered> {
        let is_late = |waiting: &Option<Waiting>| {
            waiting.as_ref().is_some_and(|waiting| waiting.deadline.has_passed())
        };
        let index = self.waiting.iter().position(is_late)?;
        let Waiting { echo, bytes, .. } = self.remove(self.first + index as u64)?;
        Some((echo.timed_out(), bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbel_events::StreamState;
    use umbel_proto::streams::batch_append_req::Options;
    use umbel_proto::streams::batch_append_resp::Outcome;
    use umbel_proto::streams::{BatchAppendReq, ExpectedRevision};

    use super::*;
    use crate::batch::Batch;
    use crate::convert;
    use crate::stage::{Stage, event, id, run};

    /// Has a batch with one event written, to a stream named like its number.
    fn write(stage: &Stage, writing: &mut Writing, number: i64, deadline: Deadline) {
        let stream_identifier = Some(convert::identifier(&format!("cart-{number}")));
        let expected_stream_position = Some(ExpectedRevision::Any(()));
        let options =
            Options { stream_identifier, expected_stream_position, deadline_option: None };
        let mut batch = Batch::new(options, deadline, &stage.service.budget);
        let proposed_messages = vec![event(number)];
        let part = BatchAppendReq { proposed_messages, ..BatchAppendReq::default() };
        batch.add(part, &stage.service.budget);
        let (bytes, echo) = (batch.bytes(), Echo::new(id(number), &batch.options));
        writing.write(batch.append().unwrap(), echo, bytes, deadline);
    }

    /// Which batch was answered, and the code of its failure; 0 where it was written.
    fn said((answer, bytes): Answered) -> (i64, i32) {
        assert!(bytes > 0, "what the batch held is given back with its answer");
        let number = (0..1000).find(|number| answer.correlation_id == Some(id(*number)));
        let code = match answer.result {
            Some(Outcome::Error(status)) => status.code,
            Some(Outcome::Success(_)) => 0,
            None => panic!("{answer:?}"),
        };
        (number.expect("a batch of the test"), code)
    }

    /// Story: the thread that appends let go of what appends held only after it had told what they
    /// came to.
    #[test]
    fn every_batch_has_one_answer_however_many_are_handed_on_together() {
        run(async {
            let (stage, mut writing) = (Stage::new(), Writing::default());
            assert!(writing.next().await.is_none());
            for number in 0..200 {
                write(&stage, &mut writing, number, Deadline::NEVER);
                let waits = number % 7 != 0;
                writing.hand_on(&stage.service.store, waits);
            }
            writing.hand_on(&stage.service.store, false);
            assert_eq!((writing.len(), writing.due()), (200, Deadline::NEVER));
            for number in 0..200 {
                assert_eq!(said(writing.next().await.unwrap()), (number, 0));
            }
            assert!(writing.next().await.is_none() && writing.is_empty());
            assert_eq!(stage.bytes(), 0);
            let is_missing = |number| {
                stage.store.stream(&format!("cart-{number}")).unwrap() == StreamState::Missing
            };
            assert!(!(0..200).any(is_missing));
        });
    }

    #[test]
    fn who_is_answered_that_his_time_is_up_is_not_answered_again() {
        run(async {
            let (stage, mut writing) = (Stage::new(), Writing::default());
            write(&stage, &mut writing, 1, Deadline::NEVER);
            write(&stage, &mut writing, 2, Deadline::after(Duration::from_secs(2)));
            write(&stage, &mut writing, 3, Deadline::after(Duration::from_secs(1)));
            let soon = writing.due();
            assert!(writing.time_out().is_none());
            soon.passed().await;
            assert_eq!(said(writing.time_out().unwrap()), (3, 4));
            assert!(writing.time_out().is_none() && writing.due() != soon);
            assert_eq!(writing.len(), 2);
            writing.hand_on(&stage.service.store, false);
            // Its outcome comes all the same, and is nobody's any more.
            assert_eq!(said(writing.next().await.unwrap()), (1, 0));
            assert_eq!(said(writing.next().await.unwrap()), (2, 0));
            assert!(writing.next().await.is_none());
            assert_eq!(writing.due(), Deadline::NEVER);
        });
    }

    #[test]
    fn what_is_dropped_before_the_store_has_it_is_answered_as_closed() {
        run(async {
            let (stage, mut writing) = (Stage::new(), Writing::default());
            for number in 0..3 {
                write(&stage, &mut writing, number, Deadline::NEVER);
            }
            drop(std::mem::take(&mut writing.outgoing));
            for number in 0..3 {
                assert_eq!(said(writing.next().await.unwrap()), (number, 14));
            }
            assert!(writing.next().await.is_none());
        });
    }
}
