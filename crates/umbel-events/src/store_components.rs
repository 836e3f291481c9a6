//! [`StoreComponents`]: the parts of a store that readers and the appender use.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use umbel_base::damage_count::DamageCount;
use umbel_base::fail_point;
use umbel_env::{Env, OpenMark, OpenState, Pin};

use crate::event_log::EventLog;
use crate::event_log::replica_file::ReplicaRecord;
use crate::index::Index;
use crate::index::stream_existence::StreamExistence;
use crate::index::stream_head::StreamHead;
use crate::primitives::background_signal::BackgroundSignal;
use crate::primitives::store_clock::{ClockEvidence, StoreClock};
use crate::types::error::{Error, Result};
use crate::types::event::EventId;
use crate::visibility::visible_position::VisiblePosition;

/// Parts of a store.
#[derive(Debug)]
pub struct StoreComponents {
    /// Environment whose file names are resolved in the store's open directory.
    pub env: Env,
    /// Environment outside of the store's directory.
    pub outer_env: Env,
    /// Absolute path of the store's directory at the open.
    pub folder: PathBuf,
    /// Whether writes are forbidden.
    pub read_only: bool,
    /// Whether an append is acknowledged only once it is durable.
    pub sync_before_ack: bool,
    /// Maximum bytes of the event log; `None` for no limit.
    pub log_quota_bytes: Option<u64>,
    /// The event log.
    pub log: Arc<EventLog>,
    /// Index that is derived from the log.
    pub index: Index,
    /// Filter of the existing streams.
    pub existence: StreamExistence,
    /// Position up to which readers see events.
    pub visible: VisiblePosition,
    /// The last applied slot of a replica, which records it; `None` for other stores.
    pub replica: Option<Arc<ReplicaRecord>>,
    /// Signal to the background thread.
    pub background: BackgroundSignal,
    /// Reason why the store accepts no more writes; `None` while it does.
    pub fatal_error: Arc<OnceLock<String>>,
    /// Errors about damaged data.
    pub damage: DamageCount,
    /// Whether the store is open in this process. A store is not open after a close or in a forked
    /// child, which must not wait for locks of the store.
    pub open_mark: OpenMark,
    /// Wall clock, set once the last event is known.
    pub clock: OnceLock<Arc<StoreClock>>,
    /// Pin of the files that this process reads, where the store is open for reading only.
    pub pin: Mutex<Option<Box<dyn Pin>>>,
}

impl Drop for StoreComponents {
    fn drop(&mut self) {
        // Readers of the index may outlive it, and keep the lock's directory open.
        self.log.pinned_files.release_lock();
    }
}

impl StoreComponents {
    /// The wall clock as far as the store believes it.
    pub fn clock(&self) -> &Arc<StoreClock> {
        self.clock.get_or_init(|| {
            let clock = Arc::clone(&self.env.clock);
            Arc::new(StoreClock::new(clock, ClockEvidence::default(), true))
        })
    }

    /// Returns an error where the store allows no reads any more.
    pub fn check_open(&self) -> Result<()> {
        if self.open_mark.is_open() { Ok(()) } else { Err(self.not_open_error().into()) }
    }

    #[cold]
    fn not_open_error(&self) -> umbel::Error {
        match self.open_mark.state() {
            OpenState::Forked => umbel::Error::Forked(self.folder.clone()),
            OpenState::Open | OpenState::Closed => umbel::Error::Closed,
        }
    }

    /// Returns an error in a forked child, or where the store is closed. Takes no lock.
    pub fn check_process(&self) -> umbel::Result<()> {
        if self.open_mark.is_forked() { Err(self.not_open_error()) } else { Ok(()) }
    }

    /// Returns an error where the store accepts no writes.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::invalid("the event store was opened for reading only"));
        }
        match self.fatal_error.get() {
            Some(reason) => Err(umbel::Error::ReadOnly(reason.clone()).into()),
            None => Ok(()),
        }
    }

    /// Returns an error in a replicated store, which does not support this operation yet.
    pub fn check_not_replicated(&self, operation: &str) -> Result<()> {
        match self.visible.gate.as_replicated() {
            None => Ok(()),
            Some(_) => Err(Error::invalid(format!(
                "a replicated event store does not support {operation} yet"
            ))),
        }
    }

    /// A random event id.
    pub fn new_id(&self) -> Result<EventId> {
        Ok(EventId::from_random(self.env.entropy.id()?))
    }

    /// Returns the head of an indexed stream.
    pub fn head(&self, stream: &str) -> umbel::Result<Option<StreamHead>> {
        self.head_with_hash(stream, self.existence.hash(stream))
    }

    /// Returns the head of an indexed stream whose name has this hash.
    pub fn head_with_hash(&self, stream: &str, hash: u64) -> umbel::Result<Option<StreamHead>> {
        match self.existence.may_contain(hash) {
            true => self.head_past_filter(stream),
            false => Ok(None),
        }
    }

    /// Returns the head of an indexed stream whose name passed the filter of stream names.
    #[inline]
    pub fn head_past_filter(&self, stream: &str) -> umbel::Result<Option<StreamHead>> {
        let head = self.index.head(stream)?;
        if head.is_none() {
            self.existence.note_false_positive();
        }
        Ok(head)
    }

    /// Makes the log durable. After a failure, the store accepts no more writes.
    pub fn sync_log(&self) -> Result<()> {
        self.check_process()?;
        sync_log(&self.log, &self.fatal_error)?;
        if self.log.needs_fill() {
            self.background.request_fill();
        }
        Ok(())
    }
}

/// Makes the log durable. Records a fatal failure as the reason why the store accepts no more
/// writes.
pub fn sync_log(log: &EventLog, failed: &OnceLock<String>) -> umbel::Result<()> {
    fail_point!("events-skip-log-sync", |_| Ok(()));
    if let Some(reason) = failed.get() {
        return Err(umbel::Error::ReadOnly(reason.clone()));
    }
    log.sync()
}
