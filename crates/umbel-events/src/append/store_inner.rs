//! [`Shared`]: what every handle of a store shares, and how an append gets from the log into the
//! index and to whom it is acknowledged.
//!
//! Locks are taken in this order: flusher, driver, appender; then those of the log.

use std::ops::Deref;
use std::sync::Mutex;

use umbel::DirectoryStats;
use umbel_env::JoinHandle;
use umbel_existence::Progress;

use crate::appender::{Appender, Task, Tried};
use crate::callbacks::Callbacks;
use crate::error::Result;
use crate::format;
use crate::lock::locked;
use crate::parts::Parts;
use crate::request::{Appended, Request};
use crate::turn::Turn;

/// Requests that are put into the index together have no more events, unless one alone has.
const GATHERED_EVENTS: usize = 1024;

/// What an append may write besides its events: metadata of a stream that comes back, most of
/// which is shorter.
const BESIDES_BYTES: usize = 8 << 10;

/// What every handle of a store shares.
#[derive(Debug)]
pub struct Shared {
    /// What the store is made of.
    pub parts: Parts,
    /// Who wants to be called once something can be seen.
    pub callbacks: Callbacks,
    /// Held by whoever appends; `None` before the store is ready and after it was closed.
    pub appender: Mutex<Option<Appender>>,
    /// Held by whoever puts appends into the index that others made.
    pub driver: Mutex<()>,
    /// Held by whoever flushes the index or closes it.
    pub flusher: Mutex<()>,
    /// Held by whoever scavenges.
    pub scavenger: Turn,
    /// The thread in the background.
    pub thread: Mutex<Option<Box<dyn JoinHandle>>>,
}

impl Deref for Shared {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Shared {
    /// Has what a request will ask of the filter fetched from memory: a miss of the caches takes as
    /// long as checking the request and taking the lock.
    #[inline]
    pub fn prefetch(&self, request: &Request<'_>) {
        request.prefetched().for_each(|append| self.existence.prefetch(append.stream));
    }

    /// Where the directory is. Of a forked child, which must wait for no lock, without the id.
    pub fn directory(&self) -> DirectoryStats {
        let instance = self.check_process().map(|()| locked(&self.log.table).instance).ok();
        let instance = instance.filter(|id| *id != [0; 16]);
        DirectoryStats::new(&*self.env.files, &self.folder, instance)
    }

    /// Does a task as far as the log. Returns the answers, and the position that has to be visible
    /// before they are given.
    pub fn submit(&self, task: &Task<'_>) -> Result<(Vec<Appended>, u64)> {
        loop {
            self.check_writable()?;
            let mut appender = locked(&self.appender);
            let tried = match &mut *appender {
                Some(appender) => appender.try_do(&self.parts, task),
                None => Err(umbel::Error::Closed.into()),
            };
            // A refusal may name a revision that a power cut could take yet.
            let rests_on = match (&tried, &*appender) {
                (Err(error), Some(appender)) if self.syncs => {
                    let streams = error.streams();
                    streams.filter_map(|name| appender.last_ahead_of(&self.parts, name)).max()
                }
                _ => None,
            };
            drop(appender);
            self.visible.tell();
            match tried {
                Ok(Tried::Done(answers, position)) => return Ok((answers, position)),
                Ok(Tried::Full) => self.flush_index()?,
                Err(refused) => {
                    rests_on.map_or(Ok(()), |position| self.drive(position))?;
                    return Err(refused);
                }
            }
        }
    }

    /// Does a request as [`Shared::submit`] does a task; `None`, with nothing done, where it would
    /// have to wait or is refused.
    pub fn try_submit(&self, request: &Request<'_>) -> Option<(Vec<Appended>, u64)> {
        self.prefetch(request);
        if self.check_writable().is_err() || request.check().is_err() || self.index.holds_back() {
            return None;
        }
        let mut guard = self.appender.try_lock().ok()?;
        let appender = guard.as_mut()?;
        let besides = BESIDES_BYTES + appender.end.reserve_bytes();
        // Whoever goes on in the next chunk writes the end of this one.
        let frames = request.appends.iter().flat_map(|append| {
            append.events.iter().map(|event| format::frame_bytes(append.stream, event))
        });
        if appender.end.is_full(frames.sum::<usize>() + besides) {
            return None;
        }
        let tried = appender.try_do(&self.parts, &Task::Append(*request));
        drop(guard);
        self.visible.tell();
        match tried {
            Ok(Tried::Done(answers, position)) => Some((answers, position)),
            // An error may rest on what is not durable yet, and waits for it. What is in the log
            // although there is one is known again by its ids.
            Ok(Tried::Full) | Err(_) => None,
        }
    }

    /// Does requests as far as the log, one after the other, as [`Shared::submit`] does a task, and
    /// puts those that need no sync into the index together: a request by itself takes the locks
    /// and the index by itself. One answer for each.
    pub fn submit_each(&self, requests: &[Request<'_>]) -> Vec<Result<(Vec<Appended>, u64)>> {
        let mut done = Vec::with_capacity(requests.len());
        while let Some(next) = requests.get(done.len()) {
            let rest = &requests[done.len()..];
            if rest.len() == 1 || !self.gather(rest, &mut done) {
                // The last one, or one that is refused or has no room: it is answered as it would
                // be by itself.
                self.prefetch(next);
                let checked = next.check();
                done.push(checked.and_then(|()| self.submit(&Task::Append(*next))));
            }
        }
        done
    }

    /// Does requests as long as nothing keeps one from being done at once. Whether there were any.
    fn gather(
        &self,
        requests: &[Request<'_>],
        done: &mut Vec<Result<(Vec<Appended>, u64)>>,
    ) -> bool {
        let before = done.len();
        if let Some(first) = requests.first() {
            self.prefetch(first);
        }
        if self.check_writable().is_err() {
            return false;
        }
        let mut guard = locked(&self.appender);
        let Some(appender) = guard.as_mut().filter(|_| self.check_writable().is_ok()) else {
            return false;
        };
        appender.gathers = true;
        if let Some(first) = requests.first() {
            appender.prefetch(&self.parts, first);
        }
        let mut events = 0;
        for (index, request) in requests.iter().enumerate() {
            if let Some(next) = requests.get(index + 1) {
                self.prefetch(next);
                appender.prefetch(&self.parts, next);
            }
            events += request.appends.iter().map(|append| append.events.len()).sum::<usize>();
            let is_first = done.len() == before;
            if (events > GATHERED_EVENTS && !is_first) || request.check().is_err() {
                break;
            }
            match appender.try_do(&self.parts, &Task::Append(*request)) {
                Ok(Tried::Done(answers, position)) => done.push(Ok((answers, position))),
                Ok(Tried::Full) | Err(_) => break,
            }
        }
        appender.gathers = false;
        if !self.syncs {
            // Whoever waits for them tries once more, and meets the failure.
            let _ = appender.apply_queue(&self.parts);
        }
        drop(guard);
        self.visible.tell();
        done.len() > before
    }

    /// Waits until `position` can be seen, and does what is needed for that.
    pub fn drive(&self, position: u64) -> Result<()> {
        while self.visible.position() < position {
            self.check_process()?;
            let driver = locked(&self.driver);
            if self.visible.position() >= position {
                break;
            }
            let driven = self.drive_once();
            drop(driver);
            self.visible.tell();
            self.callbacks.run(&self.parts);
            driven?;
        }
        Ok(())
    }

    /// Puts into the index what is in the queue, after a sync where one is needed.
    /// REQUIRES: the driver's lock.
    fn drive_once(&self) -> Result<()> {
        self.check_writable()?;
        if !self.syncs {
            return match &mut *locked(&self.appender) {
                Some(appender) => appender.apply_queue(&self.parts),
                None => Err(umbel::Error::Closed.into()),
            };
        }
        let queue = match &mut *locked(&self.appender) {
            Some(appender) => appender.queue.take(),
            None => return Err(umbel::Error::Closed.into()),
        };
        let Some(last) = queue.last() else { return Ok(()) };
        #[cfg(feature = "canary")]
        let is_early = umbel_base::canary::Switch::EventsSeenEarly.is_on();
        #[cfg(not(feature = "canary"))]
        let is_early = false;
        if self.log.durable() < last.end && !is_early {
            self.sync_log()?;
        }
        let mut batch = self.index.batch();
        for queued in &queue {
            for change in queued.changes.iter() {
                self.index.add(&mut batch, &change);
            }
        }
        self.index.commit(&mut batch, (&self.log, last.position))?;
        let changes = || queue.iter().flat_map(|queued| queued.changes.iter());
        self.insert(changes());
        if let Some(appender) = &mut *locked(&self.appender) {
            appender.forget(&queue);
        }
        self.visible.advance(last.position, changes().map(|change| change.hash));
        if let Some(appender) = &mut *locked(&self.appender) {
            appender.queue.reuse(queue);
        }
        Ok(())
    }

    /// Whether something is in the log and not in the index.
    pub fn has_queue(&self) -> bool {
        locked(&self.appender).as_ref().is_some_and(|appender| !appender.queue.is_empty())
    }

    /// Puts everything that was appended before the call into the index and makes that durable.
    pub fn flush_index(&self) -> Result<()> {
        self.check_writable()?;
        if let Some(last) = self.log.last_position() {
            self.drive(last)?;
        }
        // Before the lock, because whoever is called may append and need it.
        self.callbacks.run(&self.parts);
        let _flusher = locked(&self.flusher);
        // Who had the lock before may have closed the store.
        self.check_writable()?;
        let position = self.visible.position();
        self.sync_log()?;
        #[cfg(feature = "canary")]
        let position = match umbel_base::canary::Switch::EventsMarkerTooFar.is_on() {
            true => self.log.last_position().unwrap_or(position),
            false => position,
        };
        if self.index.durable_through()? < position {
            match self.index.flush(&self.log, position) {
                Err(umbel::Error::Full { .. }) if self.log.shed() => {
                    self.index.flush(&self.log, position)?;
                }
                flushed => flushed?,
            }
        }
        match self.flush_filter(position) {
            // A later flush makes up for it; until then an open reads more of the log.
            Err(umbel::Error::Full { .. }) => Ok(()),
            flushed => Ok(flushed?),
        }
    }

    /// Makes durable what the filter holds.
    fn flush_filter(&self, position: u64) -> umbel::Result<()> {
        self.existence.flush(&self.log, position)?;
        if !self.bell.is_heard() {
            while self.existence.step(&self.index)? == Progress::More {}
        }
        Ok(())
    }
}
