//! [`PartialBatch`]: the received part of a batch, and [`OpenBatch`]: a batch whose last part is
//! missing.
//!
//! A call is not polled while its client takes no responses. So a separate task releases an open
//! batch at its deadline; the response follows when the call is polled again.

use std::sync::{Arc, Mutex};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use prost::bytes::Bytes;
use tokio::task::AbortHandle;
use tonic::Status;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_proto::shared::{StreamIdentifier, Uuid};
use umbel_proto::streams::BatchAppendResp;
use umbel_proto::streams::batch_append_req::Options;

use crate::event_store::append_command::{AppendCommand, StreamEvents};
use crate::protocol::deadline::Deadline;
use crate::protocol::proto_convert;
use crate::resources::inbound_quota::InboundQuota;
use crate::services::streams::append::EventBuffer;
use crate::services::streams::batch_response::BatchResponseBuilder;
use crate::services::streams::proposed_events::{BatchPart, ProposedEvents};
use crate::telemetry::append_metrics::AppendTimer;

/// The received part of a batch.
pub struct PartialBatch {
    /// Options of the batch, with the target of its events.
    pub options: Options,
    /// Deadline of the write.
    pub deadline: Deadline,
    /// Latency from the arrival of the first part.
    pub timer: AppendTimer,
    events: EventBuffer,
    /// Reason why the batch will be refused.
    rejection: Option<Status>,
}

impl PartialBatch {
    /// Creates a batch without events.
    pub fn new(
        mut options: Options,
        deadline: Deadline,
        timer: AppendTimer,
        budget: &Arc<InboundQuota>,
    ) -> PartialBatch {
        let name = options.stream_identifier.take().map(|identifier| identifier.stream_name);
        let is_long = name.as_ref().is_some_and(|name| proto_convert::is_name_too_long(name));
        let refusal = is_long.then(|| {
            let why = format!("the stream's name is longer than {STREAM_NAME_BYTES_MAX} bytes");
            Status::invalid_argument(why)
        });
        if let Some(name) = name.filter(|_| !is_long) {
            // Without the copy it would keep the whole message in memory until the response is
            // taken.
            let stream_name = Bytes::copy_from_slice(&name);
            options.stream_identifier = Some(StreamIdentifier { stream_name });
        }
        let events = EventBuffer::new(budget);
        PartialBatch { options, deadline, timer, events, rejection: refusal }
    }

    /// Bytes that the batch's events hold.
    pub fn bytes(&self) -> usize {
        self.events.bytes
    }

    /// Adds a part.
    pub fn add(&mut self, part: BatchPart, budget: &Arc<InboundQuota>) {
        if self.changes_options(&part) {
            let why = "the options of a batch belong in its first part and cannot change";
            self.reject(Status::invalid_argument(why), budget);
        }
        self.add_events(part.events, budget);
    }

    /// Whether the part has options other than those of the first part.
    fn changes_options(&self, part: &BatchPart) -> bool {
        fail_point!("batch-accept-changed-options", |_| false);
        part.options.as_ref().is_some_and(|options| *options != self.options)
    }

    fn add_events(&mut self, message: ProposedEvents, budget: &Arc<InboundQuota>) {
        if self.rejection.is_none()
            && let Err(refusal) = self.events.add_all(message)
        {
            self.reject(refusal, budget);
        }
    }

    /// Records the first reason to refuse the batch, and drops the batch's events.
    pub fn reject(&mut self, why: Status, budget: &Arc<InboundQuota>) {
        self.rejection.get_or_insert(why);
        self.events = EventBuffer::new(budget);
    }

    /// Converts the batch into a command for the store.
    pub fn into_append(self) -> Result<AppendCommand, Status> {
        if let Some(refusal) = self.rejection {
            return Err(refusal);
        }
        let stream = proto_convert::stream_name(self.options.stream_identifier)?;
        let expected = self.options.expected_stream_position.map(Into::into);
        let expected = proto_convert::expected_revision(expected)?;
        let EventBuffer { events, quota_share: share, .. } = self.events;
        Ok(AppendCommand::to_stream(StreamEvents { stream, expected, events }, share))
    }
}

/// A batch whose last part is missing.
pub struct OpenBatch {
    /// The received part; `None` after the deadline.
    batch: Arc<Mutex<Option<PartialBatch>>>,
    /// Builder of the response at the deadline; `None` once it was used.
    response: Option<BatchResponseBuilder>,
    /// Bytes that the call counts for the batch.
    pub bytes: usize,
    deadline: Deadline,
    timer: AbortHandle,
}

impl OpenBatch {
    /// Creates a batch from its first part; the last part must arrive by `until`.
    pub fn new(id: Uuid, batch: PartialBatch, until: Deadline) -> OpenBatch {
        let echo = Some(BatchResponseBuilder::new(id, &batch.options, batch.timer.clone()));
        let bytes = batch.bytes();
        let batch = Arc::new(Mutex::new(Some(batch)));
        let held = Arc::clone(&batch);
        let timer = tokio::spawn(async move {
            until.wait().await;
            drop(held.lock().ignore_poison().take());
        });
        OpenBatch { batch, response: echo, bytes, deadline: until, timer: timer.abort_handle() }
    }

    /// Adds a part, unless the deadline has passed.
    pub fn add(&mut self, part: BatchPart, refusal: Option<Status>, budget: &Arc<InboundQuota>) {
        let mut batch = self.batch.lock().ignore_poison();
        if let Some(batch) = &mut *batch {
            batch.add(part, budget);
            if let Some(refusal) = refusal {
                batch.reject(refusal, budget);
            }
        }
        self.bytes = batch.as_ref().map_or(0, PartialBatch::bytes);
    }

    /// Returns the complete batch. After the deadline, returns the builder of the batch's response
    /// instead, unless it was used.
    pub fn finish(mut self) -> Result<PartialBatch, Option<BatchResponseBuilder>> {
        let batch = self.batch.lock().ignore_poison().take();
        batch.ok_or_else(|| self.response.take())
    }

    /// Deadline of the last part; never once the batch had its response.
    pub fn response_deadline(&self) -> Deadline {
        if self.response.is_some() { self.deadline } else { Deadline::NEVER }
    }

    /// Returns the timeout response once, after the deadline.
    pub fn expire(&mut self) -> Option<BatchAppendResp> {
        if !self.response_deadline().has_passed() {
            return None;
        }
        drop(self.batch.lock().ignore_poison().take());
        self.bytes = 0;
        self.response.take().map(BatchResponseBuilder::expire)
    }
}

impl Drop for OpenBatch {
    fn drop(&mut self) {
        self.timer.abort();
        // The aborted task may be destroyed late; its bytes are released now.
        drop(self.batch.lock().ignore_poison().take());
    }
}
