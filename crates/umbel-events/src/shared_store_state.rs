//! [`StoreInner`]: state that all handles of a store share.
//!
//! Locks are taken in this order: `flush_lock`, `index_lock`, `appender`, then the locks of the
//! event log.

use std::ops::Deref;
use std::sync::Mutex;
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::DirectoryStats;
use umbel_env::{JobThread, JoinHandle};
use umbel_existence::StepProgress;

use crate::append::ack_callbacks::AckCallbacks;
use crate::append::appender::Appender;
use crate::primitives::exclusive_task::ExclusiveTask;
use crate::store_components::StoreComponents;
use crate::types::crash_recovery::CrashRecovery;
use crate::types::error::{Error, Result};

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
    /// The thread of scavenges that a caller does not wait for.
    pub scavenge_thread: JobThread,
    /// The background thread.
    pub background_thread: Mutex<Option<Box<dyn JoinHandle>>>,
    /// Work of the open after a crash.
    pub crash_recovery: Option<CrashRecovery>,
}

impl Deref for StoreInner {
    type Target = StoreComponents;

    fn deref(&self) -> &StoreComponents {
        &self.components
    }
}

impl StoreInner {
    /// Location of the directory. In a forked child, which must not wait for a lock, the location
    /// lacks the directory's id.
    pub fn directory(&self) -> DirectoryStats {
        let instance =
            self.check_process().map(|()| self.log.manifest.lock().ignore_poison().instance).ok();
        let instance = instance.filter(|id| *id != [0; 16]);
        DirectoryStats::new(&*self.env.files, &self.folder, instance)
    }

    /// Indexes everything that was appended before the call, and makes the index durable. A leader
    /// first waits until the slots have it.
    pub fn flush_index(&self) -> Result<()> {
        self.check_writable()?;
        match self.log.last_position() {
            Some(last) if self.visible.gate.check_leads().is_ok() => {
                self.apply_through(last).map_err(Error::without_append)?;
            }
            _ => {}
        }
        self.flush_visible()
    }

    /// Makes the index durable as it is. In a store on one machine, indexes everything first.
    pub fn flush_without_slots(&self) -> Result<()> {
        match self.visible.gate.as_replicated() {
            None => self.flush_index(),
            Some(_) => self.flush_visible(),
        }
    }

    /// Makes the index durable as it is.
    fn flush_visible(&self) -> Result<()> {
        // Before the lock, because a callback may append and need it.
        self.callbacks.run_visible(&self.components);
        let _flusher = self.flush_lock.lock().ignore_poison();
        // The previous holder of the lock may have closed the store.
        self.check_writable()?;
        let position = self.visible.position();
        self.sync_log()?;
        self.flush_index_through(position)
    }

    /// Continues the log in a new chunk, and flushes the index. So all events from before the call
    /// are in chunks that have ended.
    pub fn end_newest_chunk(&self) -> Result<()> {
        loop {
            self.check_writable()?;
            // Without the appender's lock, since it takes long. A failure is reported below.
            let _ = self.log.prepare_chunk(0, true);
            let ended = match &mut *self.appender.lock().ignore_poison() {
                Some(appender) => appender.end_chunk(&self.components)?,
                None => return Err(umbel::Error::Closed.into()),
            };
            self.flush_index()?;
            if ended {
                return Ok(());
            }
        }
    }

    /// Makes the index durable with everything up to `position`. REQUIRES: the index has everything
    /// up to `position`, the log is durable up to there, and the caller holds `flush_lock`.
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
