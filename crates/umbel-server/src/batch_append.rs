//! BatchAppend: many groups of events over one call, each answered by itself once it is done.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{BATCHES_BYTES_MAX, BATCHES_OPEN_MAX, BATCHES_WRITTEN_MAX};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tonic::{Request, Response, Status, Streaming};
use umbel_proto::shared::Uuid;
use umbel_proto::streams::batch_append_req::{DeadlineOption, Options};
use umbel_proto::streams::{BatchAppendReq, BatchAppendResp};

use crate::answers::{Answers, in_steps};
use crate::append::Gathered;
use crate::batch_outcome::{self, Echo};
use crate::deadline::{self, Deadline};
use crate::service::Service;
use crate::store::Append;
use crate::{convert, failure};

type Answer = Result<BatchAppendResp, Status>;
/// A batch being written: its answer, and the bytes that it held.
type Written = Pin<Box<dyn Future<Output = (BatchAppendResp, usize)> + Send>>;

/// Answers each batch that the client sends.
pub async fn batch_append(
    service: Arc<Service>,
    deadline: Deadline,
    request: Request<Streaming<BatchAppendReq>>,
) -> Result<Response<Answers<BatchAppendResp>>, Status> {
    let batches = Batches {
        service,
        deadline,
        parts: request.into_inner(),
        has_ended: false,
        open: HashMap::new(),
        written: FuturesUnordered::new(),
        bytes: 0,
        end: None,
    };
    Ok(Response::new(in_steps(batches, Batches::step)))
}

/// A batch whose last part has not come.
struct Batch {
    options: Options,
    events: Gathered,
    /// Why it will be refused.
    refusal: Option<Status>,
}

/// The batches of one call.
struct Batches {
    service: Arc<Service>,
    deadline: Deadline,
    parts: Streaming<BatchAppendReq>,
    /// Whether the client sends no more, or nothing more is taken.
    has_ended: bool,
    open: HashMap<Uuid, Batch>,
    written: FuturesUnordered<Written>,
    /// What the batches that are open or being written hold.
    bytes: usize,
    /// How the call ends after the answers to what is being written.
    end: Option<Status>,
}

impl Batches {
    async fn step(mut self) -> (Vec<Answer>, Option<Batches>) {
        match self.next().await {
            Some(answer) => (vec![Ok(answer)], Some(self)),
            None => (self.end.take().map(Err).into_iter().collect(), None),
        }
    }

    /// The next answer; `None` where there is none any more.
    async fn next(&mut self) -> Option<BatchAppendResp> {
        loop {
            if self.has_ended && self.written.is_empty() {
                return None;
            }
            let has_memory = self.bytes < BATCHES_BYTES_MAX && self.service.budget.has_room();
            let has_room =
                self.written.len() < BATCHES_WRITTEN_MAX && (has_memory || self.written.is_empty());
            let service = Arc::clone(&self.service);
            tokio::select! {
                Some((answer, bytes)) = self.written.next() => {
                    self.bytes -= bytes;
                    #[cfg(feature = "canary")]
                    let answer = self.swapped(answer).await;
                    return Some(answer);
                }
                part = self.parts.message(), if has_room && !self.has_ended => {
                    match part.map_err(failure::unreadable) {
                        Ok(Some(part)) => {
                            if let Err(status) = self.take(part) {
                                self.end_with(status);
                            }
                        }
                        Ok(None) => self.has_ended = true,
                        Err(status) => self.end_with(status),
                    }
                }
                () = service.stopping(), if !self.has_ended => {
                    self.end_with(failure::stopping());
                }
                () = self.deadline.passed(), if !self.has_ended => {
                    self.end_with(deadline::too_late());
                }
            }
        }
    }

    #[cfg(feature = "canary")]
    async fn swapped(&mut self, mut answer: BatchAppendResp) -> BatchAppendResp {
        if umbel_base::canary::Switch::ServerBatchesSwapped.is_on()
            && let Some((mut other, bytes)) = self.written.next().await
        {
            std::mem::swap(&mut answer.result, &mut other.result);
            self.written.push(Box::pin(async move { (other, bytes) }));
        }
        answer
    }

    fn end_with(&mut self, status: Status) {
        self.has_ended = true;
        self.end = Some(status);
        // Nothing is added to batches that are not whole; others need their share of the budget.
        self.open.clear();
    }

    /// Takes a part. An error ends the call; what is wrong with one batch is its own answer.
    fn take(&mut self, part: BatchAppendReq) -> Result<(), Status> {
        let Some(id) = part.correlation_id else {
            return Err(Status::invalid_argument("a batch has no correlation id; give it a UUID"));
        };
        if self.open.len() >= BATCHES_OPEN_MAX && !self.open.contains_key(&id) {
            return Err(Status::resource_exhausted(format!(
                "{BATCHES_OPEN_MAX} batches are begun; end some before beginning others"
            )));
        }
        let batch = self.open.entry(id.clone()).or_insert_with(|| Batch {
            options: part.options.clone().unwrap_or_default(),
            events: Gathered::new(&self.service.budget),
            refusal: None,
        });
        if part.options.is_some_and(|options| options != batch.options) {
            let why = "the options of a batch come with its first part and do not change";
            batch.refusal.get_or_insert_with(|| Status::invalid_argument(why));
        }
        let before = batch.events.bytes;
        for message in part.proposed_messages {
            if batch.refusal.is_none() {
                batch.refusal = batch.events.add(message).err();
            }
        }
        if batch.refusal.is_some() {
            batch.events = Gathered::new(&self.service.budget);
        }
        self.bytes = self.bytes - before + batch.events.bytes;
        if part.is_final
            && let Some(batch) = self.open.remove(&id)
        {
            self.submit(id, batch);
        } else if self.bytes > BATCHES_BYTES_MAX && self.written.is_empty() {
            return Err(Status::resource_exhausted(format!(
                "batches that are begun hold more than {BATCHES_BYTES_MAX} bytes; end some before \
                 beginning others"
            )));
        }
        Ok(())
    }

    fn submit(&mut self, id: Uuid, batch: Batch) {
        let bytes = batch.events.bytes;
        let echo = Echo::new(id, &batch.options);
        let deadline = self.deadline.earlier(self.deadline_of(&batch.options));
        let append = match append(batch) {
            Ok(append) => append,
            Err(status) => {
                let answer = echo.refused(&status);
                self.written.push(Box::pin(async move { (answer, bytes) }));
                return;
            }
        };
        if deadline.has_passed() {
            self.written.push(Box::pin(async move { (echo.timed_out(), bytes) }));
            return;
        }
        let done = self.service.store.submit(append);
        self.written.push(Box::pin(async move {
            let answer = match deadline.limit(done).await {
                Ok(Ok(result)) => echo.outcome(result),
                Ok(Err(_)) => echo.outcome(Err(batch_outcome::closed())),
                Err(_) => echo.timed_out(),
            };
            (answer, bytes)
        }));
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

fn append(batch: Batch) -> Result<Append, Status> {
    if let Some(refusal) = batch.refusal {
        return Err(refusal);
    }
    let stream = convert::stream_name(batch.options.stream_identifier)?;
    let expected = convert::expected(batch.options.expected_stream_position)?;
    let Gathered { events, share, .. } = batch.events;
    Ok(Append { stream, expected, events, share })
}
