//! [`Batch`]: a batch as far as it has come, and [`Begun`]: one whose last part is waited for.
//!
//! A call does nothing while its client takes no answers. So what a begun batch holds is given back
//! by a task of its own once its time is up; the answer follows when the call goes on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::bytes::Bytes;
use tokio::task::AbortHandle;
use tonic::Status;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_proto::shared::{StreamIdentifier, Uuid};
use umbel_proto::streams::batch_append_req::{Options, ProposedMessage};
use umbel_proto::streams::{BatchAppendReq, BatchAppendResp};

use crate::append::Gathered;
use crate::batch_outcome::Echo;
use crate::budget::Budget;
use crate::convert;
use crate::deadline::Deadline;
use crate::store::Append;

/// A batch as far as it has come.
pub struct Batch {
    /// Where its events go.
    pub options: Options,
    /// Until when it is worth writing.
    pub deadline: Deadline,
    events: Gathered,
    /// Why it will be refused.
    refusal: Option<Status>,
}

impl Batch {
    /// One without events.
    pub fn new(mut options: Options, deadline: Deadline, budget: &Arc<Budget>) -> Batch {
        let name = options.stream_identifier.take().map(|identifier| identifier.stream_name);
        let is_long = name.as_ref().is_some_and(|name| convert::is_too_long(name));
        let refusal = is_long.then(|| {
            let why = format!("a stream's name may have {STREAM_NAME_BYTES_MAX} bytes");
            Status::invalid_argument(why)
        });
        if let Some(name) = name.filter(|_| !is_long) {
            // As it came it keeps the whole message in memory, until the answer is taken.
            let stream_name = Bytes::copy_from_slice(&name);
            options.stream_identifier = Some(StreamIdentifier { stream_name });
        }
        Batch { options, deadline, events: Gathered::new(budget), refusal }
    }

    /// The bytes that its events hold.
    pub fn bytes(&self) -> usize {
        self.events.bytes
    }

    /// Takes a part.
    pub fn add(&mut self, part: BatchAppendReq, budget: &Arc<Budget>) {
        #[cfg(feature = "canary")]
        let part = BatchAppendReq {
            options: part
                .options
                .filter(|_| !umbel_base::canary::Switch::ServerBatchChangesMind.is_on()),
            ..part
        };
        if part.options.is_some_and(|options| options != self.options) {
            let why = "the options of a batch come with its first part and do not change";
            self.refuse(Status::invalid_argument(why), budget);
        }
        self.add_events(part.proposed_messages, budget);
    }

    fn add_events(&mut self, messages: Vec<ProposedMessage>, budget: &Arc<Budget>) {
        if self.refusal.is_none() {
            self.events.expect(messages.len());
        }
        for message in messages {
            if self.refusal.is_some() {
                return;
            }
            if let Err(refusal) = self.events.add(message) {
                self.refuse(refusal, budget);
            }
        }
    }

    /// Notes why it will be refused, unless that is known. It holds nothing from then on.
    pub fn refuse(&mut self, why: Status, budget: &Arc<Budget>) {
        self.refusal.get_or_insert(why);
        self.events = Gathered::new(budget);
    }

    /// What the store is to do.
    pub fn append(self) -> Result<Append, Status> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let stream = convert::stream_name(self.options.stream_identifier)?;
        let expected = convert::expected(self.options.expected_stream_position)?;
        let Gathered { events, share, .. } = self.events;
        Ok(Append { stream, expected, events, share })
    }
}

/// A batch whose last part is waited for.
pub struct Begun {
    /// `None` once its time is up.
    batch: Arc<Mutex<Option<Batch>>>,
    /// How the batch is answered once its time is up; `None` once it was.
    echo: Option<Echo>,
    /// Bytes of it that its call counts.
    pub bytes: usize,
    until: Deadline,
    timer: AbortHandle,
}

impl Begun {
    /// One with its first part, whose last one must have come by `until`.
    pub fn new(id: Uuid, batch: Batch, until: Deadline) -> Begun {
        let echo = Some(Echo::new(id, &batch.options));
        let bytes = batch.bytes();
        let batch = Arc::new(Mutex::new(Some(batch)));
        let held = Arc::clone(&batch);
        let timer = tokio::spawn(async move {
            until.passed().await;
            drop(locked(&held).take());
        });
        Begun { batch, echo, bytes, until, timer: timer.abort_handle() }
    }

    /// Takes a part, unless it comes too late.
    pub fn add(&mut self, part: BatchAppendReq, refusal: Option<Status>, budget: &Arc<Budget>) {
        let mut batch = locked(&self.batch);
        if let Some(batch) = &mut *batch {
            batch.add(part, budget);
            if let Some(refusal) = refusal {
                batch.refuse(refusal, budget);
            }
        }
        self.bytes = batch.as_ref().map_or(0, Batch::bytes);
    }

    /// The batch, whose last part has come. Where that came too late: what its answer repeats, if
    /// it has none yet.
    pub fn finish(mut self) -> Result<Batch, Option<Echo>> {
        let batch = locked(&self.batch).take();
        batch.ok_or_else(|| self.echo.take())
    }

    /// Until when its last part is waited for; for ever once it was answered.
    pub fn due(&self) -> Deadline {
        if self.echo.is_some() { self.until } else { Deadline::NEVER }
    }

    /// The answer that its time is up, where it is and that was not said yet.
    pub fn give_up(&mut self) -> Option<BatchAppendResp> {
        if !self.due().has_passed() {
            return None;
        }
        drop(locked(&self.batch).take());
        self.bytes = 0;
        self.echo.take().map(Echo::gave_up)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.timer.abort();
        // The task goes when somebody has time for it.
        drop(locked(&self.batch).take());
    }
}

fn locked(batch: &Mutex<Option<Batch>>) -> MutexGuard<'_, Option<Batch>> {
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}
