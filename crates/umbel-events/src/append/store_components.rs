//! [`Parts`]: what a store is made of, for whoever reads and for whoever appends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use umbel_env::{Env, OpenMark, OpenState, Pin};

use crate::bell::Bell;
use crate::changes::Change;
use crate::error::{Error, Result};
use crate::event::EventId;
use crate::event_log::EventLog;
use crate::existence::Existence;
use crate::head::Head;
use crate::index::Index;
use crate::visible::Visible;

/// What a store is made of.
#[derive(Debug)]
pub struct Parts {
    /// The world, with its files held at the store's directory.
    pub env: Env,
    /// The world outside of it.
    pub outside: Env,
    /// The store's directory, from the root on, as it was opened.
    pub folder: PathBuf,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// Whether an append is acknowledged only once it is durable.
    pub syncs: bool,
    /// The event log.
    pub log: Arc<EventLog>,
    /// What is made of it.
    pub index: Index,
    /// Which streams cannot be there.
    pub existence: Existence,
    /// Up to where readers see.
    pub visible: Visible,
    /// Calls the thread in the background.
    pub bell: Bell,
    /// Why nothing can be written any more.
    pub failed: Arc<OnceLock<String>>,
    /// Whether it is open, in this process: it was closed, or this is a forked child, which must
    /// wait for none of the locks of a store.
    pub open: OpenMark,
    /// Keeps the files that are read, where the store is open for reading only.
    pub pin: Mutex<Option<Box<dyn Pin>>>,
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Readers of the index may outlive it, and hold what the lock lies in.
        self.log.kept.end();
    }
}

impl Parts {
    /// An error where nothing can be read any more.
    pub fn check_open(&self) -> Result<()> {
        if self.open.is_open() { Ok(()) } else { Err(self.why_not_open().into()) }
    }

    #[cold]
    fn why_not_open(&self) -> umbel::Error {
        match self.open.state() {
            OpenState::Forked => umbel::Error::Forked(self.folder.clone()),
            OpenState::Open | OpenState::Closed => umbel::Error::Closed,
        }
    }

    /// An error in a forked child, where the store is closed, too. Takes no lock.
    pub fn check_process(&self) -> umbel::Result<()> {
        if self.open.is_forked() { Err(self.why_not_open()) } else { Ok(()) }
    }

    /// An error where nothing can be written.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::invalid("the store was opened for reading only"));
        }
        match self.failed.get() {
            Some(reason) => Err(umbel::Error::ReadOnly(reason.clone()).into()),
            None => Ok(()),
        }
    }

    /// A random event id.
    pub fn new_id(&self) -> Result<EventId> {
        Ok(EventId::from_random(self.env.entropy.id()?))
    }

    /// The head of a stream that is in the index.
    pub fn head(&self, stream: &str) -> umbel::Result<Option<Head>> {
        self.head_of(stream, self.existence.hash(stream))
    }

    /// The head of a stream that is in the index, whose name has this hash.
    pub fn head_of(&self, stream: &str, hash: u64) -> umbel::Result<Option<Head>> {
        match self.existence.may_contain(hash) {
            true => self.head_that_may_be(stream),
            false => Ok(None),
        }
    }

    /// The head of a stream that is in the index, where the filter does not deny it.
    pub fn head_that_may_be(&self, stream: &str) -> umbel::Result<Option<Head>> {
        let head = self.index.head(stream)?;
        if head.is_none() {
            self.existence.note_in_vain();
        }
        Ok(head)
    }

    /// Gives the events their numbers in the views, and takes the streams that are new into the
    /// filter. REQUIRES: they are in the index.
    pub fn insert<'a>(&self, changes: impl Iterator<Item = Change<'a>> + Clone) {
        let placed = changes.clone().map(|change| (change.stream, change.placed()));
        if self.index.views.add(placed) {
            self.bell.wants_flush();
        }
        if self.existence.insert(changes) {
            self.bell.wants_step();
        }
    }

    /// Makes the log durable. After a failure nothing is written any more.
    pub fn sync_log(&self) -> Result<()> {
        self.check_process()?;
        sync_log(&self.log, &self.failed)?;
        if self.log.wants_fill() {
            self.bell.wants_fill();
        }
        Ok(())
    }
}

/// Makes the log durable. A failure that is final is noted as the reason why nothing can be written
/// any more.
pub fn sync_log(log: &EventLog, failed: &OnceLock<String>) -> umbel::Result<()> {
    #[cfg(feature = "canary")]
    if umbel_base::canary::Switch::EventsIndexAhead.is_on() {
        return Ok(());
    }
    if let Some(reason) = failed.get() {
        return Err(umbel::Error::ReadOnly(reason.clone()));
    }
    log.sync()
}
