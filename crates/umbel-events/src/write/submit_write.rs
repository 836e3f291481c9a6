//! Entry of every write: takes the appender's lock and executes requests up to the log write.
//!
//! A request of any kind becomes a [`PendingAppend`], which ends with its acknowledgement.

use std::sync::Arc;
use umbel_base::ignore_poison::IgnorePoison;

use crate::append::append_request::{AppendRequest, CheckedMetadata, WriteResult};
use crate::append::appender::{TaskOutcome, WriteTask};
use crate::event_log::event_format;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::write::pending_append::PendingAppend;

/// Maximum number of events that are indexed together. A request with more is executed alone.
const GROUP_EVENTS_MAX: usize = 1024;

/// Bytes reserved for what an append writes besides its events: metadata of an undeleted stream,
/// which is mostly shorter.
const UNDELETE_RESERVE_BYTES: usize = 8 << 10;

impl StoreInner {
    /// Prefetches the filter lines that a request will probe. A cache miss takes as long as
    /// checking the request and taking the lock.
    #[inline]
    fn prefetch(&self, request: &AppendRequest<'_>) {
        request.appends_to_prefetch().for_each(|append| self.existence.prefetch(append.stream));
    }

    fn pending_append(self: &Arc<Self>, results: Vec<WriteResult>, position: u64) -> PendingAppend {
        let ticket = self.visible.gate.ticket(position);
        PendingAppend { shared: Arc::clone(self), results, position, ticket }
    }

    /// Executes an append up to the log write.
    pub fn submit_append(self: &Arc<Self>, request: &AppendRequest<'_>) -> Result<PendingAppend> {
        self.prefetch(request);
        self.submit_checked(request, request.check_metadata())
    }

    /// Executes an append with checked metadata up to the log write.
    pub fn submit_checked(
        self: &Arc<Self>,
        request: &AppendRequest<'_>,
        metadata: Result<CheckedMetadata>,
    ) -> Result<PendingAppend> {
        let metadata = match metadata {
            Ok(metadata) => {
                request.validate_unless_checked(&metadata)?;
                metadata
            }
            Err(invalid) => {
                request.validate()?;
                return Err(invalid);
            }
        };
        self.submit(&WriteTask::Append(*request, &metadata))
    }

    /// Executes a task up to the log write.
    pub fn submit(self: &Arc<Self>, task: &WriteTask<'_>) -> Result<PendingAppend> {
        self.damage.record(self.execute(task))
    }

    fn execute(self: &Arc<Self>, task: &WriteTask<'_>) -> Result<PendingAppend> {
        loop {
            self.check_writable()?;
            let mut appender = self.appender.lock().ignore_poison();
            let tried = match &mut *appender {
                Some(appender) => appender.try_execute(&self.components, task),
                None => Err(umbel::Error::Closed.into()),
            };
            // A refusal may name a revision that is not durable yet.
            let rests_on = match (&tried, &*appender) {
                (Err(error), Some(appender)) if self.sync_before_ack => {
                    let streams = error.streams();
                    streams
                        .filter_map(|name| appender.last_pending_position(&self.components, name))
                        .max()
                }
                _ => None,
            };
            drop(appender);
            self.visible.notify();
            match tried {
                Ok(TaskOutcome::Done(results, position)) => {
                    return Ok(self.pending_append(results, position));
                }
                Ok(TaskOutcome::NeedsFlush) => self.flush_index()?,
                Err(refused) => {
                    let applied = rests_on.map_or(Ok(()), |position| self.apply_through(position));
                    applied.map_err(Error::without_append)?;
                    return Err(refused);
                }
            }
        }
    }

    /// Executes a request like [`StoreInner::submit`]. Returns `None`, and writes nothing, where
    /// the request would have to wait or is refused.
    pub fn try_submit(self: &Arc<Self>, request: &AppendRequest<'_>) -> Option<PendingAppend> {
        self.prefetch(request);
        if self.check_writable().is_err()
            || request.validate().is_err()
            || self.index.is_write_stalled()
        {
            return None;
        }
        let metadata = request.check_metadata().ok()?;
        let mut guard = self.appender.try_lock().ok()?;
        let appender = guard.as_mut()?;
        let besides = UNDELETE_RESERVE_BYTES + appender.chunk_writer.reserve_bytes();
        // An append that continues in the next chunk writes the end of this one.
        let frames = request.appends.iter().flat_map(|append| {
            append.events.iter().map(|event| event_format::frame_bytes(append.stream, event))
        });
        if appender.chunk_writer.is_full(frames.sum::<usize>() + besides) {
            return None;
        }
        let task = WriteTask::Append(*request, &metadata);
        let tried = appender.try_execute(&self.components, &task);
        drop(guard);
        self.visible.notify();
        match tried {
            Ok(TaskOutcome::Done(results, position)) => {
                Some(self.pending_append(results, position))
            }
            // An error may depend on undurable events, and must wait for them. If the events were
            // written despite the error, a retry recognises their ids.
            Ok(TaskOutcome::NeedsFlush) | Err(_) => None,
        }
    }

    /// Executes requests with checked metadata up to the log write, in order, like
    /// [`StoreInner::submit`]. Requests that need no sync are indexed together, since indexing each
    /// one separately would take the locks each time. Returns one result for each request.
    pub fn submit_each(
        self: &Arc<Self>,
        mut requests: Vec<(AppendRequest<'_>, Result<CheckedMetadata>)>,
    ) -> Vec<Result<PendingAppend>> {
        let mut done = Vec::with_capacity(requests.len());
        while done.len() < requests.len() {
            let rest = &requests[done.len()..];
            // A long request in a group would be decided twice if it is refused.
            let is_alone = rest.len() == 1
                || rest.first().is_some_and(|(first, _)| first.event_count() > GROUP_EVENTS_MAX);
            if is_alone || !self.submit_group(rest, &mut done) {
                // The last request, or one that is refused or does not fit, is executed by itself.
                let Some((next, metadata)) = requests.get_mut(done.len()) else { break };
                let metadata = std::mem::replace(metadata, Ok(CheckedMetadata::default()));
                done.push(self.submit_checked(next, metadata));
            }
        }
        done
    }

    /// Executes requests until one cannot be executed at once. Returns whether any request was
    /// executed.
    fn submit_group(
        self: &Arc<Self>,
        requests: &[(AppendRequest<'_>, Result<CheckedMetadata>)],
        done: &mut Vec<Result<PendingAppend>>,
    ) -> bool {
        let before = done.len();
        if let Some((first, _)) = requests.first() {
            self.prefetch(first);
        }
        if self.check_writable().is_err() {
            return false;
        }
        let mut guard = self.appender.lock().ignore_poison();
        let Some(appender) = guard.as_mut().filter(|_| self.check_writable().is_ok()) else {
            return false;
        };
        appender.defers_indexing = true;
        if let Some((first, _)) = requests.first() {
            appender.prefetch(&self.components, first);
        }
        let mut events = 0;
        for (index, (request, metadata)) in requests.iter().enumerate() {
            if let Some((next, _)) = requests.get(index + 1) {
                self.prefetch(next);
                appender.prefetch(&self.components, next);
            }
            events += request.event_count();
            let Ok(metadata) = metadata else { break };
            if events > GROUP_EVENTS_MAX || request.validate_unless_checked(metadata).is_err() {
                break;
            }
            let task = WriteTask::Append(*request, metadata);
            match appender.try_execute(&self.components, &task) {
                Ok(TaskOutcome::Done(results, position)) => {
                    done.push(Ok(self.pending_append(results, position)));
                }
                Ok(TaskOutcome::NeedsFlush) | Err(_) => break,
            }
        }
        appender.defers_indexing = false;
        if !self.sync_before_ack {
            // A thread that waits for them retries and gets the error.
            let _ = appender.apply_queue(&self.components);
        }
        drop(guard);
        self.visible.notify();
        done.len() > before
    }
}
