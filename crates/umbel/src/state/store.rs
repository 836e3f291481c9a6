//! [`Store`]: what every handle of an open store shares.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::{Env, JoinHandle, OpenMark, OpenState, Pin};

use crate::advisor::Advising;
use crate::budget::Budget;
use crate::cache::ClockCache;
use crate::counters::StoreCounters;
use crate::keyspace_core::KeyspaceCore;
use crate::memory_budget::TurnWait;
use crate::options::SharedOptions;
use crate::poison::Poison;
use crate::shortage::Shortage;
use crate::snapshots::Snapshots;
use crate::version::{Manifest, TableContext, Version};
use crate::wal::{Bell, Syncer, Wal};
use crate::writes::Request;

/// What the commit lock guards. Apart from what stands beside it, because each write changes it.
#[derive(Debug)]
#[repr(align(128))]
pub struct CommitState {
    /// The write-ahead log.
    pub wal: Wal,
    /// The last sequence number taken.
    pub last_sequence: SequenceNumber,
    /// Reused for records.
    pub scratch: Vec<u8>,
    /// Bytes written since the memtables were last added up.
    pub bytes_unweighed: u64,
    /// How many may be written before they are added up again.
    pub weighing_bytes: u64,
}

/// What the work lock guards: who does what in the background.
#[derive(Debug, Default)]
pub struct WorkState {
    /// Keyspaces (by id) being flushed now.
    pub flushing: Vec<u32>,
    /// Compactions of background threads running now.
    pub compactions: usize,
    /// Compactions of callers' threads running now.
    pub callers: usize,
    /// Callers' threads that write files of long values now.
    pub writers_of_files: usize,
    /// Callers' threads that see to existence filters now.
    pub tending: usize,
    /// Whether the threads shall end.
    pub stop: bool,
    /// Counts changes that could make work possible, so that nobody sleeps through one.
    pub ticks: u64,
    /// What waits for room on the disk.
    pub shortage: Shortage,
    /// What is known about garbage.
    pub garbage: Garbage,
    /// After how long to look for work again although nothing changed.
    pub look_again: Option<Duration>,
    /// When the advisor decides next.
    pub advising: Advising,
    /// Since when flushes, and compactions, have been waiting for a turn in a shared budget.
    pub turn_waits: [Option<TurnWait>; 2],
    /// Whether work that was found last waits for one.
    pub waits_for_turn: bool,
}

impl WorkState {
    /// An error where the store is being closed: no work may begin any more.
    pub fn check_not_stopped(&self) -> Result<()> {
        if self.stop { Err(Error::Closed) } else { Ok(()) }
    }
}

/// What the background knows about garbage. Guarded by the work lock.
#[derive(Debug, Default)]
pub struct Garbage {
    /// How many callers wait for all there is to compact, garbage too.
    pub wanted: usize,
    /// The newest write when it was last looked, and since when it has been the newest.
    pub newest: Option<(SequenceNumber, Duration)>,
    /// Of each keyspace the version that was looked at, and how many entries are garbage, about.
    pub found: HashMap<u32, (Weak<Version>, u64)>,
}

/// What every handle of an open store shares.
///
/// Locks are taken in this order: `commit`, `manifest`, `keyspaces`, `work`. `Snapshots` and the
/// cache have locks of their own under which nothing else is taken.
#[derive(Debug)]
pub struct Store {
    /// Its directory, from the root on, as it was opened.
    pub folder: PathBuf,
    /// The world outside its directory; that of its options is held there.
    pub outside: Env,
    /// Which copy of the store it is.
    pub instance: Option<[u8; 16]>,
    /// Its options.
    pub options: SharedOptions,
    /// Whether it was opened for reading only.
    pub read_only: bool,
    /// What its tables share.
    pub context: Arc<TableContext>,
    /// The published sequence number and the snapshots.
    pub snapshots: Snapshots,
    /// Set after a failed write.
    pub poison: Arc<Poison>,
    /// The block cache.
    pub cache: Arc<ClockCache>,
    /// The memory budget.
    pub budget: Arc<Budget>,
    /// Why background work was put off last, until it is done.
    pub put_off: Mutex<Option<Error>>,
    /// The allocator of file ids.
    pub ids: Arc<AtomicU64>,
    /// Writes that wait for whoever holds the commit lock to take them along.
    pub queue: Mutex<Vec<Arc<Request>>>,
    /// The commit lock.
    pub commit: Mutex<CommitState>,
    /// The one sync for all who wait.
    pub syncer: Syncer,
    /// Calls the thread that keeps log segments ready.
    pub bell: Bell,
    /// Held by whoever makes log segments ready. Taken before every other lock.
    pub tending: Mutex<()>,
    /// The manifest lock; `None` where the store is open for reading only.
    pub manifest: Option<Mutex<Manifest>>,
    /// The keyspaces.
    pub keyspaces: RwLock<Vec<Arc<KeyspaceCore>>>,
    /// Held by a reader who has the advisor decide anew because he misses filters.
    pub advising: Mutex<()>,
    /// Whether writers wait because all memtables together are too large.
    pub buffers_full: AtomicBool,
    /// The work lock.
    pub work: Mutex<WorkState>,
    /// Signalled when background work was done or became possible.
    pub moved: Condvar,
    /// Counters.
    pub counters: StoreCounters,
    /// Whether the store is open, in this process: it was closed, or is being closed, or this is a
    /// forked child, which must wait for none of the locks here.
    pub open: OpenMark,
    /// Whether a thread sees to the existence filters.
    pub tends_filters: AtomicBool,
    /// How closing ended. Locked while somebody closes; no lock but those named above is taken
    /// before it.
    pub close_outcome: Mutex<Option<Result<()>>>,
    /// The background threads.
    pub threads: Mutex<Vec<Box<dyn JoinHandle>>>,
    /// Keeps the files of the version that is read, where the store is open for reading only.
    pub pin: Mutex<Option<Box<dyn Pin>>>,
}

impl Drop for Store {
    fn drop(&mut self) {
        // Views that outlive it hold tables, and they what the lock lies in.
        self.context.obsolete.end();
    }
}

impl Store {
    /// The commit lock.
    pub fn commit_lock(&self) -> MutexGuard<'_, CommitState> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manifest lock, or an error where the store is open for reading only.
    pub fn manifest_lock(&self) -> Result<MutexGuard<'_, Manifest>> {
        Ok(self.manifest()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `attempt`, and once more where the disk has no space and a segment is reserved, whose
    /// space it gets. REQUIRES: the manifest is not locked.
    pub fn with_reserved_segment<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        match attempt() {
            Err(Error::Full { .. })
                if !self.poison.is_set() && self.manifest_lock()?.give_segment() =>
            {
                self.or_reserve_again(attempt())
            }
            done => done,
        }
    }

    /// What was done; where the disk had no space for it, what there is of it is reserved again,
    /// before other programs take it. REQUIRES: the manifest is not locked.
    pub fn or_reserve_again<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(Error::Full { .. }) = done
            && let Ok(mut manifest) = self.manifest_lock()
        {
            manifest.reserve_for_next();
        }
        done
    }

    /// The manifest, or an error where the store is open for reading only.
    pub fn manifest(&self) -> Result<&Mutex<Manifest>> {
        self.manifest.as_ref().ok_or_else(|| {
            Error::invalid("the store was opened read-only; open it with Db::open to write")
        })
    }

    /// The work lock.
    pub fn work_lock(&self) -> MutexGuard<'_, WorkState> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every keyspace.
    pub fn keyspaces(&self) -> Vec<Arc<KeyspaceCore>> {
        self.keyspaces.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keyspace with this name.
    pub fn keyspace(&self, name: &str) -> Option<Arc<KeyspaceCore>> {
        self.keyspaces().into_iter().find(|keyspace| keyspace.name == name)
    }

    /// Adds a keyspace. REQUIRES: the manifest lock.
    pub fn add_keyspace(&self, keyspace: Arc<KeyspaceCore>) {
        self.keyspaces.write().unwrap_or_else(PoisonError::into_inner).push(keyspace);
    }

    /// Removes a keyspace. REQUIRES: the manifest lock.
    pub fn remove_keyspace(&self, id: u32) {
        let mut keyspaces = self.keyspaces.write().unwrap_or_else(PoisonError::into_inner);
        keyspaces.retain(|keyspace| keyspace.id != id);
    }

    /// An error where the store was closed, or was opened by a process that forked this one. Takes
    /// no lock.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.open.is_open() { Ok(()) } else { Err(self.why_not_open()) }
    }

    #[cold]
    fn why_not_open(&self) -> Error {
        match self.open.state() {
            OpenState::Forked => Error::Forked(self.folder.clone()),
            OpenState::Open | OpenState::Closed => Error::Closed,
        }
    }

    /// An error in a forked child, where the store is closed, too. Takes no lock.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.open.is_forked() { Err(self.why_not_open()) } else { Ok(()) }
    }

    /// An error where nothing may be written.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.manifest()?;
        self.poison.check()
    }

    /// Keeps `error` as the reason why nothing may be written any more, unless it passes: for want
    /// of a descriptor or of room nothing was done, and what was to be done is tried again. Where a
    /// want of room is final, the store is poisoned already.
    pub fn final_error(&self, error: Error) -> Error {
        let passes = error.is_short_of_descriptors() || matches!(error, Error::Full { .. });
        if passes && !self.poison.is_set() {
            self.note_put_off(Some(error.clone()));
            return error;
        }
        self.poison.set(error)
    }

    /// Notes why work is put off, or that it was done.
    pub fn note_put_off(&self, reason: Option<Error>) {
        *self.put_off.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Notes what is held by readers at this moment.
    pub fn note_time(&self) {
        let now = self.options.env.clock.now();
        self.snapshots.note_time(now);
        self.keyspaces().iter().for_each(|keyspace| keyspace.view.note_time(now));
    }

    /// Wakes the threads that wait for background work.
    pub fn signal(&self) {
        self.work_lock().ticks += 1;
        self.moved.notify_all();
    }

    /// Releases a state held by [`Snapshots::hold`], and wakes the threads that wait for that. Does
    /// nothing in a forked child.
    pub fn release(&self, sequence: SequenceNumber) {
        if !self.open.is_forked() && self.snapshots.release(sequence) {
            self.signal();
        }
    }

    /// Waits until `done` or a change after which it may be; for `limit` at most.
    pub fn wait_for_change(&self, limit: Duration, done: impl Fn() -> bool) {
        let work = self.work_lock();
        if !done() {
            drop(self.moved.wait_timeout(work, limit).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Makes everything up to `sequence` durable.
    pub fn sync_through(&self, sequence: SequenceNumber) -> Result<()> {
        let clock = &*self.options.env.clock;
        self.syncer.sync_through(sequence, &self.poison, &self.counters, clock)
    }
}
