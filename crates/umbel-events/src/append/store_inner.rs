//! [`StoreInner`]: state that all handles of a store share. Takes appends from the log into the
//! index and acknowledges them.
//!
//! Locks are taken in this order: `flush_lock`, `index_lock`, `appender`; then those of the log.

use std::ops::Deref;
use std::sync::Mutex;
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::DirectoryStats;
use umbel_env::JoinHandle;
use umbel_existence::StepProgress;

use crate::append::ack_callbacks::AckCallbacks;
use crate::append::append_request::{AppendRequest, WriteResult};
use crate::append::appender::{Appender, TaskOutcome, WriteTask};
use crate::append::store_components::StoreComponents;
use crate::event_log::event_format;
use crate::primitives::exclusive_task::ExclusiveTask;
use crate::types::error::Result;

/// Most events of requests that are indexed together, unless a single request has more.
const GROUP_EVENTS_MAX: usize = 1024;

/// Bytes that an append may write besides its events: metadata of an undeleted stream, which is
/// mostly shorter.
const UNDELETE_RESERVE_BYTES: usize = 8 << 10;

/// State that all handles of a store share.
#[derive(Debug)]
pub struct StoreInner {
    /// Parts of the store.
    pub components: StoreComponents,
    /// Callbacks of acknowledgements.
    pub callbacks: AckCallbacks,
    /// Held by the appending thread; `None` before the store is ready and after its close.
    pub appender: Mutex<Option<Appender>>,
    /// Held by the thread that indexes queued appends.
    pub index_lock: Mutex<()>,
    /// Held by the thread that flushes or closes the index.
    pub flush_lock: Mutex<()>,
    /// Held by the thread that scavenges.
    pub scavenge_task: ExclusiveTask,
    /// The background thread.
    pub background_thread: Mutex<Option<Box<dyn JoinHandle>>>,
}

impl Deref for StoreInner {
    type Target = StoreComponents;

    fn deref(&self) -> &StoreComponents {
        &self.components
    }
}

impl StoreInner {
    /// Prefetches the filter lines that a request will probe. A cache miss takes as long as
    /// checking the request and taking the lock.
    #[inline]
    pub fn prefetch(&self, request: &AppendRequest<'_>) {
        request.appends_to_prefetch().for_each(|append| self.existence.prefetch(append.stream));
    }

    /// Location of the directory. Without its id in a forked child, which must not wait for a lock.
    pub fn directory(&self) -> DirectoryStats {
        let instance =
            self.check_process().map(|()| self.log.manifest.lock().ignore_poison().instance).ok();
        let instance = instance.filter(|id| *id != [0; 16]);
        DirectoryStats::new(&*self.env.files, &self.folder, instance)
    }

    /// Executes a task up to the log write. Returns the results, and the position that must become
    /// visible before they are returned to the caller.
    pub fn submit(&self, task: &WriteTask<'_>) -> Result<(Vec<WriteResult>, u64)> {
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
                Ok(TaskOutcome::Done(results, position)) => return Ok((results, position)),
                Ok(TaskOutcome::NeedsFlush) => self.flush_index()?,
                Err(refused) => {
                    rests_on.map_or(Ok(()), |position| self.apply_through(position))?;
                    return Err(refused);
                }
            }
        }
    }

    /// Executes a request like [`StoreInner::submit`]. Returns `None`, and writes nothing, where it
    /// would have to wait or is refused.
    pub fn try_submit(&self, request: &AppendRequest<'_>) -> Option<(Vec<WriteResult>, u64)> {
        self.prefetch(request);
        if self.check_writable().is_err()
            || request.validate().is_err()
            || self.index.is_write_stalled()
        {
            return None;
        }
        let mut guard = self.appender.try_lock().ok()?;
        let appender = guard.as_mut()?;
        let besides = UNDELETE_RESERVE_BYTES + appender.log_end.reserve_bytes();
        // An append that continues in the next chunk writes the end of this one.
        let frames = request.appends.iter().flat_map(|append| {
            append.events.iter().map(|event| event_format::frame_bytes(append.stream, event))
        });
        if appender.log_end.is_full(frames.sum::<usize>() + besides) {
            return None;
        }
        let tried = appender.try_execute(&self.components, &WriteTask::Append(*request));
        drop(guard);
        self.visible.notify();
        match tried {
            Ok(TaskOutcome::Done(results, position)) => Some((results, position)),
            // An error may depend on undurable events, and must wait for them. If the events were
            // written despite the error, a retry recognises their ids.
            Ok(TaskOutcome::NeedsFlush) | Err(_) => None,
        }
    }

    /// Executes requests up to the log write, in order, like [`StoreInner::submit`]. Requests that
    /// need no sync are indexed together, since each single request takes the locks and the index
    /// by itself. Returns one result for each request.
    pub fn submit_each(
        &self,
        requests: &[AppendRequest<'_>],
    ) -> Vec<Result<(Vec<WriteResult>, u64)>> {
        let mut done = Vec::with_capacity(requests.len());
        while let Some(next) = requests.get(done.len()) {
            let rest = &requests[done.len()..];
            if rest.len() == 1 || !self.submit_group(rest, &mut done) {
                // The last request, or one that is refused or does not fit, is executed by itself.
                self.prefetch(next);
                let checked = next.validate();
                done.push(checked.and_then(|()| self.submit(&WriteTask::Append(*next))));
            }
        }
        done
    }

    /// Executes requests until one cannot be executed at once. Returns whether there were any.
    fn submit_group(
        &self,
        requests: &[AppendRequest<'_>],
        done: &mut Vec<Result<(Vec<WriteResult>, u64)>>,
    ) -> bool {
        let before = done.len();
        if let Some(first) = requests.first() {
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
        if let Some(first) = requests.first() {
            appender.prefetch(&self.components, first);
        }
        let mut events = 0;
        for (index, request) in requests.iter().enumerate() {
            if let Some(next) = requests.get(index + 1) {
                self.prefetch(next);
                appender.prefetch(&self.components, next);
            }
            events += request.appends.iter().map(|append| append.events.len()).sum::<usize>();
            let is_first = done.len() == before;
            if (events > GROUP_EVENTS_MAX && !is_first) || request.validate().is_err() {
                break;
            }
            match appender.try_execute(&self.components, &WriteTask::Append(*request)) {
                Ok(TaskOutcome::Done(results, position)) => done.push(Ok((results, position))),
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

    /// Waits until `position` is visible, and does the work that this needs.
    pub fn apply_through(&self, position: u64) -> Result<()> {
        while self.visible.position() < position {
            self.check_process()?;
            let driver = self.index_lock.lock().ignore_poison();
            if self.visible.position() >= position {
                break;
            }
            let driven = self.apply_queue_once();
            drop(driver);
            self.visible.notify();
            self.callbacks.run_visible(&self.components);
            driven?;
        }
        Ok(())
    }

    /// Indexes the queue, after a sync where one is needed.
    /// REQUIRES: the caller holds `index_lock`.
    fn apply_queue_once(&self) -> Result<()> {
        self.check_writable()?;
        if !self.sync_before_ack {
            return match &mut *self.appender.lock().ignore_poison() {
                Some(appender) => appender.apply_queue(&self.components),
                None => Err(umbel::Error::Closed.into()),
            };
        }
        let queue = match &mut *self.appender.lock().ignore_poison() {
            Some(appender) => appender.queue.take_groups(),
            None => return Err(umbel::Error::Closed.into()),
        };
        let Some(last) = queue.last() else { return Ok(()) };
        self.sync_log_through(last.end)?;
        let mut batch = self.index.batch();
        for queued in &queue {
            for change in queued.changes.iter() {
                self.index.add(&mut batch, &change);
            }
        }
        self.index.commit(&mut batch, (&self.log, last.position))?;
        let changes = || queue.iter().flat_map(|queued| queued.changes.iter());
        self.update_views_and_filter(changes());
        if let Some(appender) = &mut *self.appender.lock().ignore_poison() {
            appender.remove_indexed(&queue);
        }
        self.visible.advance(last.position, changes().map(|change| change.hash));
        if let Some(appender) = &mut *self.appender.lock().ignore_poison() {
            appender.queue.reuse_groups(queue);
        }
        Ok(())
    }

    /// Whether an append is in the log but not in the index.
    pub fn has_queued_appends(&self) -> bool {
        self.appender
            .lock()
            .ignore_poison()
            .as_ref()
            .is_some_and(|appender| !appender.queue.is_empty())
    }

    /// Makes the log durable up to the offset `end`.
    fn sync_log_through(&self, end: u64) -> Result<()> {
        fail_point!("events-show-before-durable", |_| Ok(()));
        if self.log.durable() < end {
            self.sync_log()?;
        }
        Ok(())
    }

    /// Indexes everything that was appended before the call, and makes the index durable.
    pub fn flush_index(&self) -> Result<()> {
        self.check_writable()?;
        if let Some(last) = self.log.last_position() {
            self.apply_through(last)?;
        }
        // Before the lock, because a callback may append and need it.
        self.callbacks.run_visible(&self.components);
        let _flusher = self.flush_lock.lock().ignore_poison();
        // The previous holder of the lock may have closed the store.
        self.check_writable()?;
        let position = self.visible.position();
        self.sync_log()?;
        self.flush_index_through(position)
    }

    /// Makes the index durable with everything up to `position`. REQUIRES: the index has that, the
    /// log is durable up to it, and the caller holds `flush_lock`.
    fn flush_index_through(&self, position: u64) -> Result<()> {
        fail_point!(
            "events-index-claim-whole-log",
            self.log.last_position() > Some(position),
            |_| { self.flush_index_through(self.log.last_position().unwrap_or(position)) }
        );
        if self.index.durable_through()? < position {
            match self.index.flush(&self.log, position) {
                Err(umbel::Error::DiskFull { .. }) if self.log.release_next_chunk() => {
                    self.index.flush(&self.log, position)?;
                }
                flushed => flushed?,
            }
        }
        match self.flush_existence(position) {
            // A later flush catches up; until then an open reads more of the log.
            Err(umbel::Error::DiskFull { .. }) => Ok(()),
            flushed => Ok(flushed?),
        }
    }

    /// Makes the contents of the filter durable.
    fn flush_existence(&self, position: u64) -> umbel::Result<()> {
        self.existence.flush(&self.log, position)?;
        if !self.background.has_listener() {
            while self.existence.step(&self.index)? == StepProgress::More {}
        }
        Ok(())
    }
}
