//! BatchAppend: many groups of events over one call, each answered by itself once it is done.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::limits::{BATCHES_BYTES_MAX, BATCHES_OPEN_MAX, BATCHES_WRITTEN_MAX};
use futures_util::FutureExt;
use tonic::{Request, Response, Status};
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::shared::Uuid;
use umbel_proto::streams::batch_append_req::{DeadlineOption, Options};
use umbel_proto::streams::{BatchAppendReq, BatchAppendResp};

use crate::access::Caller;
use crate::acl::Action;
use crate::answers::{Answers, in_steps};
use crate::batch::{Batch, Begun};
use crate::batch_outcome::Echo;
use crate::deadline::{self, Deadline};
use crate::messages::Messages;
use crate::oversize::Oversized;
use crate::service::Service;
use crate::writing::Writing;
use crate::{convert, failure, question};

type Answer = Result<BatchAppendResp, Status>;

/// Answers each batch that the client sends. `oversized` knows which messages come without their
/// events.
pub async fn batch_append(
    service: Arc<Service>,
    deadline: Deadline,
    oversized: Oversized,
    request: Request<Messages<BatchAppendReq>>,
) -> Result<Response<Answers<BatchAppendResp>>, Status> {
    let caller = Caller::of(request.extensions());
    let batches = Batches::new(service, caller, deadline, oversized, request.into_inner());
    Ok(Response::new(in_steps(batches, Batches::step)))
}

/// The batches of one call.
struct Batches {
    service: Arc<Service>,
    caller: Caller,
    deadline: Deadline,
    oversized: Oversized,
    parts: Messages<BatchAppendReq>,
    /// How many messages were taken.
    messages: u64,
    /// Whether the client sends no more, or nothing more is taken.
    has_ended: bool,
    /// Batches whose last part has not come; those that were given up among them, so that what
    /// still comes of them is known.
    open: HashMap<Uuid, Begun>,
    writing: Writing,
    /// What the batches that are open or being written hold.
    bytes: usize,
    /// How the call ends after the answers to what is being written.
    end: Option<Status>,
}

impl Batches {
    fn new(
        service: Arc<Service>,
        caller: Caller,
        deadline: Deadline,
        oversized: Oversized,
        parts: Messages<BatchAppendReq>,
    ) -> Batches {
        Batches {
            service,
            caller,
            deadline,
            oversized,
            parts,
            messages: 0,
            has_ended: false,
            open: HashMap::new(),
            writing: Writing::default(),
            bytes: 0,
            end: None,
        }
    }

    async fn step(mut self) -> (Vec<Answer>, Option<Batches>) {
        match self.next().await {
            Some(answer) => {
                let mut answers = vec![Ok(answer)];
                // What is done besides goes along.
                while answers.len() < BATCHES_WRITTEN_MAX
                    && let Some(Some((answer, bytes))) = self.writing.next().now_or_never()
                {
                    self.bytes -= bytes;
                    answers.push(Ok(answer));
                }
                #[cfg(feature = "canary")]
                swap(&mut answers);
                (answers, Some(self))
            }
            None => (self.end.take().map(Err).into_iter().collect(), None),
        }
    }

    /// The next answer; `None` where there is none any more.
    async fn next(&mut self) -> Option<BatchAppendResp> {
        loop {
            self.take_what_is_there().await;
            self.writing.hand_on(&self.service.store, false);
            if self.has_ended && self.writing.is_empty() {
                return None;
            }
            let has_room = self.has_room();
            let service = Arc::clone(&self.service);
            let due = self.due();
            tokio::select! {
                Some((answer, bytes)) = self.writing.next() => {
                    self.bytes -= bytes;
                    return Some(answer);
                }
                part = self.parts.message(), if has_room && !self.has_ended => {
                    self.came(part).await;
                }
                () = due.passed() => {
                    let answer = self.give_up();
                    if answer.is_some() {
                        return answer;
                    }
                }
                () = service.stopping(), if !self.has_ended => {
                    self.end(Some(failure::stopping()));
                }
                () = self.deadline.passed(), if !self.has_ended => {
                    self.end(Some(deadline::too_late()));
                }
            }
        }
    }

    /// Whether another part may be taken.
    fn has_room(&self) -> bool {
        let has_memory = self.bytes < BATCHES_BYTES_MAX && self.service.budget.has_room();
        self.writing.len() < BATCHES_WRITTEN_MAX && (has_memory || self.writing.is_empty())
    }

    /// Takes the parts that have come: to wait for everything at once takes longer than a part.
    async fn take_what_is_there(&mut self) {
        for _ in 0..BATCHES_WRITTEN_MAX {
            if self.has_ended || !self.has_room() {
                return;
            }
            match self.parts.message().now_or_never() {
                Some(part) => self.came(part).await,
                None => return,
            }
            self.writing.hand_on(&self.service.store, true);
        }
    }

    /// A part came, or the end of them.
    async fn came(&mut self, part: Result<Option<BatchAppendReq>, Status>) {
        match part.map_err(failure::unreadable) {
            Ok(Some(part)) => {
                let refusal = self.counted(&part).await;
                if let Err(status) = self.take(part, refusal) {
                    self.end(Some(status));
                }
            }
            Ok(None) => self.end(None),
            Err(status) => self.end(Some(status)),
        }
    }

    /// Takes no more parts, and ends the call so once what is being written is answered.
    fn end(&mut self, status: Option<Status>) {
        self.has_ended = true;
        self.end = status;
        // Nothing is added to batches that are not whole; others need their share of the budget.
        self.open.clear();
    }

    /// Until when nobody has to be told that his batch is given up.
    fn due(&self) -> Deadline {
        let due = self.writing.due();
        self.open.values().fold(due, |due, begun| due.earlier(begun.due()))
    }

    /// The answer to a batch that was not written in time, or whose last part did not come in time.
    fn give_up(&mut self) -> Option<BatchAppendResp> {
        if let Some((answer, bytes)) = self.writing.time_out() {
            self.bytes -= bytes;
            return Some(answer);
        }
        for begun in self.open.values_mut() {
            let bytes = begun.bytes;
            if let Some(answer) = begun.give_up() {
                self.bytes -= bytes;
                return Some(answer);
            }
        }
        None
    }

    /// Why a part may not be appended. Where the store has to be asked its events are counted until
    /// that is done: many calls may wait for it.
    async fn counted(&mut self, part: &BatchAppendReq) -> Option<Status> {
        let mut share = self.service.budget.share();
        let mut asked = pin!(self.denied(part));
        match poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await {
            Poll::Ready(denied) => denied,
            Poll::Pending if share.grow(question::of_events(part.proposed_messages.len())) => {
                asked.await
            }
            Poll::Pending => Some(failure::no_room()),
        }
    }

    /// Why the caller may not append what begins with this part. It is asked in the order of the
    /// parts, so that their batches stay in theirs.
    async fn denied(&mut self, part: &BatchAppendReq) -> Option<Status> {
        let stream = &part.options.as_ref()?.stream_identifier.as_ref()?.stream_name;
        // What is no name is refused as such.
        let stream = std::str::from_utf8(stream).ok()?;
        let (access, store) = (&self.service.access, &self.service.store);
        match access.renewed(store, &self.caller).await {
            Ok(caller) => self.caller = caller,
            Err(status) => return Some(status),
        }
        access.check(store, &self.caller, Action::Write, stream).await.err()
    }

    /// Takes a part. An error ends the call; what is wrong with one batch is its own answer.
    fn take(&mut self, mut part: BatchAppendReq, denied: Option<Status>) -> Result<(), Status> {
        let id = convert::correlation_id(part.correlation_id.take())?;
        let refusal = self.oversized.take(self.messages).then(|| {
            failure::message_too_large(&format!(
                "a message may have {MESSAGE_BYTES_MAX} bytes; send the batch in parts"
            ))
        });
        let refusal = denied.or(refusal);
        self.messages += 1;
        let is_final = part.is_final;
        let service = Arc::clone(&self.service);
        if let Some(begun) = self.open.get_mut(&id) {
            self.bytes -= begun.bytes;
            begun.add(part, refusal, &service.budget);
            self.bytes += begun.bytes;
        } else {
            if !is_final && self.open.len() >= BATCHES_OPEN_MAX {
                return Err(Status::resource_exhausted(format!(
                    "{BATCHES_OPEN_MAX} batches are begun; end some before beginning others"
                )));
            }
            let batch = self.begin(part, refusal);
            self.bytes += batch.bytes();
            if is_final {
                self.submit(id, batch);
                return Ok(());
            }
            let until = batch.deadline.earlier(Deadline::after(service.parts_time));
            self.open.insert(id.clone(), Begun::new(id.clone(), batch, until));
        }
        if is_final && let Some(begun) = self.open.remove(&id) {
            self.finish(id, begun);
        } else if self.bytes > BATCHES_BYTES_MAX && self.writing.is_empty() {
            return Err(Status::resource_exhausted(format!(
                "batches that are begun hold more than {BATCHES_BYTES_MAX} bytes; end some before \
                 beginning others"
            )));
        }
        Ok(())
    }

    /// Goes on with a batch whose last part has come.
    fn finish(&mut self, id: Uuid, begun: Begun) {
        // Its time may have run out since it was counted.
        let bytes = begun.bytes;
        match begun.finish() {
            Ok(batch) => self.submit(id, batch),
            Err(Some(echo)) => self.writing.answer(echo.gave_up(), bytes),
            Err(None) => self.bytes -= bytes,
        }
    }

    /// A batch with its first part.
    fn begin(&self, mut part: BatchAppendReq, refusal: Option<Status>) -> Batch {
        let options = part.options.take().unwrap_or_default();
        let deadline = self.deadline.earlier(self.deadline_of(&options));
        let mut batch = Batch::new(options, deadline, &self.service.budget);
        batch.add(part, &self.service.budget);
        if let Some(refusal) = refusal {
            batch.refuse(refusal, &self.service.budget);
        }
        batch
    }

    fn submit(&mut self, id: Uuid, batch: Batch) {
        let (bytes, deadline) = (batch.bytes(), batch.deadline);
        #[cfg(feature = "canary")]
        let deadline = match umbel_base::canary::Switch::ServerBatchTooLateWritten.is_on() {
            true => Deadline::NEVER,
            false => deadline,
        };
        let echo = Echo::new(id, &batch.options);
        let append = match batch.append() {
            Ok(append) => append,
            Err(status) => {
                self.writing.answer(echo.refused(&status), bytes);
                return;
            }
        };
        if deadline.has_passed() {
            self.writing.answer(echo.timed_out(), bytes);
            return;
        }
        self.writing.write(append, echo, bytes, deadline);
    }

    fn deadline_of(&self, options: &Options) -> Deadline {
        match options.deadline_option {
            Some(DeadlineOption::Duration(duration)) => {
                Deadline::after(Duration::try_from(duration).unwrap_or(Duration::ZERO))
            }
            Some(DeadlineOption::Moment(moment)) => {
                let now = Duration::from_micros(self.service.env.clock.wall_micros());
                let seconds = u64::try_from(moment.seconds).unwrap_or(0);
                let nanos = u32::try_from(moment.nanos).unwrap_or(0);
                let moment = Duration::from_secs(seconds) + Duration::from_nanos(u64::from(nanos));
                Deadline::after(moment.saturating_sub(now))
            }
            None => Deadline::NEVER,
        }
    }
}

#[cfg(feature = "canary")]
fn swap(answers: &mut [Answer]) {
    if umbel_base::canary::Switch::ServerBatchesSwapped.is_on()
        && let [Ok(one), Ok(other), ..] = answers
    {
        std::mem::swap(&mut one.result, &mut other.result);
    }
}

#[cfg(test)]
#[path = "batch_append_tests.rs"]
mod tests;
