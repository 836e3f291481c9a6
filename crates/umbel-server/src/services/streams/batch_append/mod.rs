//! The call BatchAppend: many batches of events in one call; each batch gets its own response once
//! it is appended.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{
    BATCHES_BYTES_MAX, BATCHES_IN_FLIGHT_MAX, BATCHES_OPEN_MAX, UNTAKEN_MESSAGE_TIME,
};
use futures_util::FutureExt;
use tonic::{Request, Response, Status};
use umbel_base::fail_point;
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::shared::Uuid;
use umbel_proto::streams::BatchAppendResp;
use umbel_proto::streams::batch_append_req::{DeadlineOption, Options};

use crate::access_control::acl::StreamAction;
use crate::auth::authorization::Caller;
use crate::event_store::append_submitter::WaitingAppends;
use crate::grpc::message_stream::MessageStream;
use crate::grpc::response_stream::{ResponseStream, stream_steps};
use crate::protocol::deadline::{self, Deadline};
use crate::protocol::{grpc_status, proto_convert};
use crate::resources::inbound_quota::EvictableValue;
use crate::server_context::ServerContext;
use crate::services::streams::batch_response::BatchResponseBuilder;
use crate::services::streams::in_flight_batches::InFlightBatches;
use crate::services::streams::oversized_messages::OversizedMessages;
use crate::services::streams::partial_batch::{OpenBatch, PartialBatch};
use crate::services::streams::proposed_events::BatchPart;

type BatchResult = Result<BatchAppendResp, Status>;

/// Responds to each batch of the client. `oversized` says which messages arrive without their
/// events.
pub async fn batch_append(
    service: Arc<ServerContext>,
    deadline: Deadline,
    oversized: OversizedMessages,
    request: Request<MessageStream<BatchPart>>,
) -> Result<Response<ResponseStream<BatchAppendResp>>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let batches = BatchAppendCall::new(service, caller, deadline, oversized, request.into_inner());
    Ok(Response::new(stream_steps(batches, BatchAppendCall::step)))
}

/// State of one call: its batches and their order.
struct BatchAppendCall {
    service: Arc<ServerContext>,
    caller: Caller,
    deadline: Deadline,
    oversized: OversizedMessages,
    requests: MessageStream<BatchPart>,
    /// Number of messages read.
    messages_read: u64,
    /// Whether the client has sent its last message, or the call has stopped reading.
    input_ended: bool,
    /// Batches whose last part is missing, including expired ones, so that their later parts are
    /// recognized.
    open: HashMap<Uuid, OpenBatch>,
    in_flight: InFlightBatches,
    /// Appends of batches in flight that wait for their turn. The call reads no more meanwhile.
    waiting: Option<WaitingAppends>,
    /// Bytes of the batches that are open or being written.
    bytes: usize,
    /// Final status of the call, after the responses to batches being written.
    final_status: Option<Status>,
}

impl BatchAppendCall {
    fn new(
        service: Arc<ServerContext>,
        caller: Caller,
        deadline: Deadline,
        oversized: OversizedMessages,
        parts: MessageStream<BatchPart>,
    ) -> BatchAppendCall {
        BatchAppendCall {
            service,
            caller,
            deadline,
            oversized,
            requests: parts,
            messages_read: 0,
            input_ended: false,
            open: HashMap::new(),
            in_flight: InFlightBatches::default(),
            waiting: None,
            bytes: 0,
            final_status: None,
        }
    }

    async fn step(mut self) -> (Vec<BatchResult>, Option<BatchAppendCall>) {
        match self.next_response().await {
            Some(answer) => {
                let mut answers = vec![Ok(answer)];
                // Responses that are ready join the same step.
                while answers.len() < BATCHES_IN_FLIGHT_MAX
                    && let Some(Some((answer, bytes))) = self.in_flight.next().now_or_never()
                {
                    self.bytes -= bytes;
                    answers.push(Ok(answer));
                }
                (answers, Some(self))
            }
            None => (self.final_status.take().map(Err).into_iter().collect(), None),
        }
    }

    /// Returns the next response; `None` after the last one.
    async fn next_response(&mut self) -> Option<BatchAppendResp> {
        loop {
            self.take_ready_parts().await;
            self.submit_queued(false);
            if self.input_ended && self.in_flight.is_empty() {
                return None;
            }
            let has_room = self.has_capacity();
            let service = Arc::clone(&self.service);
            let due = self.next_deadline();
            tokio::select! {
                Some((answer, bytes)) = self.in_flight.next() => {
                    self.bytes -= bytes;
                    return Some(answer);
                }
                part = self.requests.message(), if has_room && !self.input_ended => {
                    self.receive(part).await;
                }
                () = due.wait() => {
                    let answer = self.expire_next();
                    if answer.is_some() {
                        return answer;
                    }
                }
                () = wait_submitted(&mut self.waiting), if self.waiting.is_some() => {
                    self.waiting = None;
                }
                () = service.wait_stopping(), if !self.input_ended || self.waiting.is_some() => {
                    // Batches that wait for their turn are refused, all together: a later batch is
                    // not written if an earlier one is not.
                    self.waiting = None;
                    if !self.input_ended {
                        self.end_input(Some(grpc_status::shutting_down()));
                    }
                }
                () = self.deadline.wait(), if !self.input_ended => {
                    self.end_input(Some(deadline::deadline_exceeded()));
                }
            }
        }
    }

    /// Whether the call may read another part.
    fn has_capacity(&self) -> bool {
        if self.waiting.is_some() {
            return false;
        }
        let has_memory = self.bytes < BATCHES_BYTES_MAX && self.service.append_quota.has_capacity();
        self.in_flight.has_place() && (has_memory || self.in_flight.is_empty())
    }

    /// Reads the parts that have arrived, since one wait on all kinds of events takes longer than
    /// handling a part.
    async fn take_ready_parts(&mut self) {
        for _ in 0..BATCHES_IN_FLIGHT_MAX {
            if self.input_ended || !self.has_capacity() {
                return;
            }
            match self.requests.message().now_or_never() {
                Some(part) => self.receive(part).await,
                None => return,
            }
            self.submit_queued(true);
        }
    }

    /// Submits the queued appends to the store; with `may_wait`, only when many are queued.
    ///
    /// INVARIANT: no append is queued in the call while the call waits, since it may not be polled
    /// again. Appends that wait for their turn belong to a task.
    fn submit_queued(&mut self, may_wait: bool) {
        self.in_flight.submit(&self.service.store, may_wait, &mut self.waiting);
    }

    /// Handles a part, or the end of the parts.
    async fn receive(&mut self, part: Result<Option<BatchPart>, Status>) {
        match part.map_err(grpc_status::decode_error) {
            Ok(Some(mut part)) => {
                let refusal = self.authorize_counted(&mut part).await;
                if let Err(status) = self.accept_part(part, refusal) {
                    self.end_input(Some(status));
                }
            }
            Ok(None) => self.end_input(None),
            Err(status) => self.end_input(Some(status)),
        }
    }

    /// Stops reading, and ends the call with `status` once the batches being written have their
    /// responses.
    fn end_input(&mut self, status: Option<Status>) {
        self.input_ended = true;
        self.final_status = status;
        // Incomplete batches can grow no more; other calls need their quota.
        self.open.clear();
    }

    /// Earliest deadline of all batches.
    fn next_deadline(&self) -> Deadline {
        let due = self.in_flight.next_deadline();
        self.open.values().fold(due, |due, begun| due.earlier(begun.response_deadline()))
    }

    /// Responds to a batch that was not written in time, or whose last part did not arrive in time.
    fn expire_next(&mut self) -> Option<BatchAppendResp> {
        if let Some((answer, bytes)) = self.in_flight.expire_next() {
            self.bytes -= bytes;
            return Some(answer);
        }
        for begun in self.open.values_mut() {
            let bytes = begun.bytes;
            if let Some(answer) = begun.expire() {
                self.bytes -= bytes;
                return Some(answer);
            }
        }
        None
    }

    /// Returns the status of a part that must not be appended. While the store is queried, the
    /// part's events count against the quota, because many calls may wait for the store. If this
    /// call stalls meanwhile, the quota may drop the events.
    async fn authorize_counted(&mut self, part: &mut BatchPart) -> Option<Status> {
        let quota = Arc::clone(&self.service.append_quota);
        let mut authorization = pin!(self.authorize(part));
        let checked = match authorization.as_mut().now_or_never() {
            Some(checked) => checked,
            None => {
                let bytes = part.events.memory_bytes;
                let events = EvictableValue::new(&quota, std::mem::take(&mut part.events));
                let time = Some(UNTAKEN_MESSAGE_TIME);
                if events.change(time, |_, share| share.grow(bytes)) != Some(true) {
                    return Some(grpc_status::append_quota_exhausted());
                }
                // Queued appends must not wait for this call, which may stall.
                self.submit_queued(false);
                let checked = authorization.await;
                match events.take() {
                    Some(events) => part.events = events,
                    None => return Some(grpc_status::append_quota_exhausted()),
                }
                checked
            }
        };
        match checked {
            Ok(Some(caller)) => {
                self.caller = caller;
                None
            }
            Ok(None) => None,
            Err(denied) => Some(denied),
        }
    }

    /// Returns the present caller if a part begins a batch, or the status if that caller must not
    /// append the batch. Parts are checked in order, which keeps the order of their batches.
    fn authorize(
        &self,
        part: &BatchPart,
    ) -> impl Future<Output = Result<Option<Caller>, Status>> + use<> {
        let identifier = part.options.as_ref().and_then(|it| it.stream_identifier.as_ref());
        // An invalid name is refused as such.
        let stream = identifier.and_then(|it| str::from_utf8(&it.stream_name).ok());
        let (stream, caller) = (stream.map(str::to_string), self.caller.clone());
        let service = Arc::clone(&self.service);
        async move {
            let Some(stream) = stream else { return Ok(None) };
            let (access, store) = (&service.authorizer, &service.store);
            let caller = access.revalidate(store, &caller).await?;
            access.authorize(store, &caller, StreamAction::Write, &stream).await?;
            Ok(Some(caller))
        }
    }

    /// Accepts a part. A returned error ends the call; an error of one batch becomes that batch's
    /// response.
    fn accept_part(&mut self, mut part: BatchPart, denied: Option<Status>) -> Result<(), Status> {
        let id = proto_convert::correlation_id(part.correlation_id.take())?;
        let refusal = self.oversized.take(self.messages_read).then(|| {
            grpc_status::message_too_large(&format!(
                "the message exceeds {MESSAGE_BYTES_MAX} bytes; send the batch in parts"
            ))
        });
        let refusal = denied.or(refusal);
        self.messages_read += 1;
        let is_final = part.is_final;
        let service = Arc::clone(&self.service);
        if let Some(begun) = self.open.get_mut(&id) {
            self.bytes -= begun.bytes;
            begun.add(part, refusal, &service.append_quota);
            self.bytes += begun.bytes;
        } else {
            if !is_final && self.open.len() >= BATCHES_OPEN_MAX {
                return Err(Status::resource_exhausted(format!(
                    "{BATCHES_OPEN_MAX} batches are incomplete, which is the limit; complete \
                     batches before starting further ones"
                )));
            }
            let batch = self.start_batch(part, refusal);
            self.bytes += batch.bytes();
            if is_final {
                self.submit(id, batch);
                return Ok(());
            }
            let until = batch.deadline.earlier(Deadline::after(service.partial_append_time));
            self.open.insert(id.clone(), OpenBatch::new(id.clone(), batch, until));
        }
        if is_final && let Some(begun) = self.open.remove(&id) {
            self.finish(id, begun);
        } else if self.bytes > BATCHES_BYTES_MAX && self.in_flight.is_empty() {
            return Err(Status::resource_exhausted(format!(
                "incomplete batches exceed {BATCHES_BYTES_MAX} bytes; complete batches before \
                 starting further ones"
            )));
        }
        Ok(())
    }

    /// Continues with a batch whose last part has arrived.
    fn finish(&mut self, id: Uuid, begun: OpenBatch) {
        // It may have expired since it was counted.
        let bytes = begun.bytes;
        match begun.finish() {
            Ok(batch) => self.submit(id, batch),
            Err(Some(echo)) => self.in_flight.complete(echo.expire(), bytes),
            Err(None) => self.bytes -= bytes,
        }
    }

    /// Creates a batch from its first part.
    fn start_batch(&self, mut part: BatchPart, refusal: Option<Status>) -> PartialBatch {
        let options = part.options.take().unwrap_or_default();
        let deadline = self.deadline.earlier(self.deadline_of(&options));
        let timer = self.service.call_metrics.appends().begin_batch(&self.service.env.clock);
        let mut batch = PartialBatch::new(options, deadline, timer, &self.service.append_quota);
        batch.add(part, &self.service.append_quota);
        if let Some(refusal) = refusal {
            batch.reject(refusal, &self.service.append_quota);
        }
        batch
    }

    fn submit(&mut self, id: Uuid, batch: PartialBatch) {
        let (bytes, deadline) = (batch.bytes(), batch.deadline);
        let echo = BatchResponseBuilder::new(id, &batch.options, batch.timer.clone());
        let append = match batch.into_append() {
            Ok(append) => append,
            Err(status) => {
                self.in_flight.complete(echo.reject(&status), bytes);
                return;
            }
        };
        if deadline.has_passed() {
            self.in_flight.complete(echo.time_out(), bytes);
            return;
        }
        self.in_flight.enqueue(append, echo, bytes, deadline);
    }

    fn deadline_of(&self, options: &Options) -> Deadline {
        fail_point!("batch-ignore-deadline", |_| Deadline::NEVER);
        match options.deadline_option {
            Some(DeadlineOption::Deadline(duration)) => {
                Deadline::after(Duration::try_from(duration).unwrap_or(Duration::ZERO))
            }
            Some(DeadlineOption::Deadline21100(moment)) => {
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

/// Waits until the appends are submitted.
async fn wait_submitted(waiting: &mut Option<WaitingAppends>) {
    if let Some(waiting) = waiting {
        waiting.wait().await;
    }
}

#[cfg(test)]
mod tests;
