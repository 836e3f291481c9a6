//! [`Store`]: the state that all handles of an open store share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, TryLockError, Weak};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::{Env, JoinHandle, OpenMark, OpenState, Pin};

use crate::advisor::AdvisorSchedule;
use crate::cache::block_cache::ClockCache;
use crate::fs::fatal_error::FatalError;
use crate::options::SharedOptions;
use crate::shared_budget::SlotWait;
use crate::state::disk_full_backoff::DiskFullBackoff;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::snapshot_list::SnapshotList;
use crate::state::write_batch::CommitRequest;
use crate::state::write_rate_watch::WriteRateWatch;
use crate::store_budget::StoreBudget;
use crate::super_version::skip_spans::SkipSpans;
use crate::thread_counters::StoreCounters;
use crate::version::manifest;
use crate::version::{Manifest, TableContext};
use crate::wal::{GroupSync, Wal, WorkerSignal};

/// State that the commit lock guards. It is in a cache line of its own, because each write changes
/// it.
#[derive(Debug)]
#[repr(align(128))]
pub struct CommitState {
    /// The WAL.
    pub wal: Wal,
    /// The last assigned sequence number.
    pub last_sequence: SequenceNumber,
    /// Reused buffer for WAL records.
    pub scratch: Vec<u8>,
    /// Bytes written since the sizes of the memtables were last summed.
    pub bytes_since_check: u64,
    /// Bytes that can be written before the sizes of the memtables are summed again.
    pub check_interval_bytes: u64,
    /// Keyspaces whose memtables became full, and are frozen before the commit lock is released.
    pub full: Vec<Arc<KeyspaceState>>,
}

/// State of the background work, which the work lock guards.
#[derive(Debug, Default)]
pub struct SchedulerState {
    /// Ids of the keyspaces that are being flushed now.
    pub flushing: Vec<u32>,
    /// Number of compactions that background threads run now.
    pub compactions: usize,
    /// Number of compactions that callers' threads run now.
    pub manual_compactions: usize,
    /// Number of callers' threads that write files of long values now.
    pub blob_writers: usize,
    /// Number of callers' threads that maintain existence filters now.
    pub existence_callers: usize,
    /// Whether the background threads must end.
    pub stop: bool,
    /// Number of changes that could make work possible. A thread that compares the number misses no
    /// change.
    pub ticks: u64,
    /// Work that waits for disk space.
    pub disk_full_backoff: DiskFullBackoff,
    /// Estimates of garbage.
    pub garbage: GarbageState,
    /// Time after which threads check for work again although nothing changed.
    pub recheck_after: Option<Duration>,
    /// Time of the advisor's next decision.
    pub advisor_schedule: AdvisorSchedule,
    /// Start of the current wait for a job slot of a shared budget, for flushes and for
    /// compactions.
    pub slot_waits: [Option<SlotWait>; 2],
    /// Whether the work found last waits for a job slot.
    pub waits_for_slot: bool,
}

impl SchedulerState {
    /// Returns an error if the store is being closed, so that no new work may begin.
    pub fn check_not_stopped(&self) -> Result<()> {
        if self.stop { Err(Error::Closed) } else { Ok(()) }
    }
}

/// The background threads' estimates of garbage, which the work lock guards.
#[derive(Debug, Default)]
pub struct GarbageState {
    /// Number of callers that wait for all compactions, those of garbage included.
    pub drain_requests: usize,
    /// Watch of the writes, which decides whether the store is quiet.
    pub write_rate: WriteRateWatch,
    /// The state of each keyspace, by its id.
    pub keyspaces: HashMap<u32, KeyspaceGarbage>,
    /// Id of the keyspace that was last examined or worked on beside writes. The next search begins
    /// after that keyspace.
    pub last_keyspace: Option<u32>,
    /// Earliest times of work beside writes in any keyspace.
    pub beside_writes_from: BesideWritesFrom,
    /// Earliest time of the next compaction for hidden entries that cursors passed.
    pub for_readers_from: Duration,
}

/// Earliest times of work for garbage while writers write.
#[derive(Debug, Clone, Copy, Default)]
pub struct BesideWritesFrom {
    /// The next flush of a memtable that hides many bytes in tables.
    pub hidden_flush: Duration,
    /// The next estimate for a compaction of garbage.
    pub estimate: Duration,
}

/// State of the search for garbage in a keyspace.
#[derive(Debug, Default)]
pub struct KeyspaceGarbage {
    /// The set of tables that `sizes` describes.
    pub content: Weak<()>,
    /// Sizes of the tables.
    pub sizes: VersionSizes,
    /// The set of tables that was last examined, and its approximate garbage.
    pub estimate: Option<(Weak<()>, GarbageEstimate)>,
    /// Number of hidden entries that cursors had passed when the keyspace was last compacted for
    /// them.
    pub hidden_passed: u64,
    /// Estimate of what the entries of the active memtable hide.
    pub memtable: Option<MemtableGarbage>,
    /// Earliest times of work beside writes in this keyspace.
    pub beside_writes_from: BesideWritesFrom,
    /// Earliest time of the next flush of a memtable of much garbage while writers write.
    pub flush_from: Duration,
}

/// Approximate garbage that the entries of an active memtable make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemtableGarbage {
    /// Sequence number of the memtable's first write, which identifies the memtable.
    pub first_sequence: SequenceNumber,
    /// Number of entries of the memtable at the time of the estimate.
    pub entries: u64,
    /// Number of range tombstones of the memtable at the time of the estimate.
    pub range_deletes: u64,
    /// Bytes of the memtable's entries that newer entries of the memtable hide, without long
    /// values.
    pub own_bytes: u64,
    /// Bytes of long values of these entries.
    pub own_long_bytes: u64,
    /// Bytes of the other entries of the memtable, without long values.
    pub visible_bytes: u64,
    /// Bytes of entries in tables that the memtable's entries hide.
    pub hidden_bytes: u64,
    /// Bytes that range tombstones hide in tables that no single one of them hides whole.
    pub partly_hidden_bytes: u64,
    /// Whether half of the memtable is garbage or hides as much in tables.
    pub is_half_garbage: bool,
}

/// Sizes of a version that bound its garbage.
#[derive(Debug, Clone, Copy, Default)]
pub struct VersionSizes {
    /// Entries and bytes of all tables, long values included.
    pub all: GarbageEstimate,
    /// Bytes of the tables, without long values in files of their own.
    pub file_bytes: u64,
    /// Upper bound of the garbage, from the tables' metadata.
    pub garbage_max: GarbageEstimate,
    /// Greatest average size of a table's entries, in bytes.
    pub entry_bytes_max: u64,
}

/// Approximate garbage of a keyspace, or the size of all its tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GarbageEstimate {
    /// Number of entries.
    pub entries: u64,
    /// Bytes in files, long values included.
    pub bytes: u64,
}

impl GarbageEstimate {
    /// A value above the entries and bytes of any tables.
    pub const MAX: GarbageEstimate = GarbageEstimate { entries: u64::MAX, bytes: u64::MAX };

    /// Adds the entries and bytes of `other`.
    pub fn add(&mut self, other: GarbageEstimate) {
        self.entries = self.entries.saturating_add(other.entries);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Whether this garbage is at least one part in `share` of `all`, by entries or by bytes.
    pub fn is_share_of(&self, all: GarbageEstimate, share: u64) -> bool {
        self.entries > 0 && self.entries.saturating_mul(share) >= all.entries
            || self.is_byte_share_of(all, share)
    }

    /// Whether this garbage is at least one part in `share` of `all`, by bytes.
    pub fn is_byte_share_of(&self, all: GarbageEstimate, share: u64) -> bool {
        self.bytes > 0 && self.bytes.saturating_mul(share) >= all.bytes
    }
}

/// The state that all handles of an open store share.
///
/// Locks are taken in this order: `commit`, `manifest`, `keyspaces`, `scheduler`. `SnapshotList`
/// and the cache have leaf locks of their own.
#[derive(Debug)]
pub struct Store {
    /// Absolute path of the store's directory, by which the store was opened.
    pub folder: PathBuf,
    /// The environment for files outside the store's directory; the environment in `options` is for
    /// files in it.
    pub outer_env: Env,
    /// Instance id: identifies this copy of the store.
    pub instance: Option<[u8; 16]>,
    /// The store's options.
    pub options: SharedOptions,
    /// Whether the store was opened read-only.
    pub read_only: bool,
    /// State that its tables share.
    pub context: Arc<TableContext>,
    /// The published sequence number and the snapshots.
    pub snapshots: SnapshotList,
    /// The fatal error, set after a failed write or sync, and the reason why background work is
    /// postponed.
    pub fatal_error: Arc<FatalError>,
    /// The block cache.
    pub cache: Arc<ClockCache>,
    /// The memory budget.
    pub budget: Arc<StoreBudget>,
    /// The next id of a file.
    pub ids: Arc<AtomicU64>,
    /// Writes that wait until the holder of the commit lock includes them in its group.
    pub commit_queue: Mutex<Vec<Arc<CommitRequest>>>,
    /// The commit lock.
    pub commit: Mutex<CommitState>,
    /// The group sync, which serves all waiting writers.
    pub group_sync: GroupSync,
    /// Signals the thread that provisions WAL segments.
    pub wal_signal: WorkerSignal,
    /// Lock that the thread holds while it runs WAL tasks; taken before every other lock.
    pub wal_task_lock: Mutex<()>,
    /// The manifest lock; `None` if the store is open read-only.
    pub manifest: Option<Mutex<Manifest>>,
    /// The keyspaces of the store.
    pub keyspaces: RwLock<Vec<Arc<KeyspaceState>>>,
    /// Lock that a thread holds while it runs the advisor.
    pub advisor_lock: Mutex<()>,
    /// Whether writers wait because all memtables together are too large.
    pub memtables_full: AtomicBool,
    /// The work lock.
    pub scheduler: Mutex<SchedulerState>,
    /// Condition variable that is signalled when background work was done or became possible.
    pub changed: Condvar,
    /// Counters of the store.
    pub counters: StoreCounters,
    /// Whether the store is open in this process: not closed, not being closed, and not in a forked
    /// child. A forked child must not wait for any lock of the store.
    pub open: OpenMark,
    /// Whether a thread maintains the existence filters.
    pub has_existence_thread: AtomicBool,
    /// Result of the close. A thread that closes the store holds this lock, and takes it after the
    /// locks in the lock order of [`Store`].
    pub close_result: Mutex<Option<Result<()>>>,
    /// The background threads.
    pub threads: Mutex<Vec<Box<dyn JoinHandle>>>,
    /// Pin that keeps the files of the version that a read-only handle reads.
    pub pin: Mutex<Option<Box<dyn Pin>>>,
}

impl Drop for Store {
    fn drop(&mut self) {
        // Super versions that outlive the store hold tables, and those hold the allocation of the
        // lock.
        self.context.obsolete.release_lock();
    }
}

impl Store {
    /// Takes the commit lock.
    pub fn commit_lock(&self) -> MutexGuard<'_, CommitState> {
        self.commit.lock().ignore_poison()
    }

    /// Takes the commit lock; `None` if another thread has it.
    pub fn try_commit_lock(&self) -> Option<MutexGuard<'_, CommitState>> {
        match self.commit.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Arms recorded ranges of `spans`. If a writer holds the commit lock, the next writer arms
    /// them instead.
    #[cold]
    pub fn arm_skip_spans(&self, spans: &SkipSpans) {
        if let Some(state) = self.try_commit_lock() {
            spans.arm(state.last_sequence);
        }
    }

    /// Takes the manifest lock. Returns an error if the store is open read-only.
    pub fn manifest_lock(&self) -> Result<MutexGuard<'_, Manifest>> {
        Ok(self.manifest()?.lock().ignore_poison())
    }

    /// Calls [`manifest::with_reserved_segment`]. REQUIRES: the caller does not hold the manifest
    /// lock.
    pub fn with_reserved_segment<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        match &self.manifest {
            Some(manifest) => manifest::with_reserved_segment(manifest, &self.fatal_error, attempt),
            None => attempt(),
        }
    }

    /// Calls [`manifest::or_reserve_again`]. REQUIRES: the caller does not hold the manifest lock.
    pub fn or_reserve_again<T>(&self, done: Result<T>) -> Result<T> {
        match &self.manifest {
            Some(manifest) => manifest::or_reserve_again(manifest, done),
            None => done,
        }
    }

    /// Returns the manifest; an error if the store is open read-only.
    pub fn manifest(&self) -> Result<&Mutex<Manifest>> {
        self.manifest.as_ref().ok_or_else(|| {
            Error::invalid("the store was opened read-only; open it with Db::open to write")
        })
    }

    /// Takes the work lock.
    pub fn scheduler_lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.scheduler.lock().ignore_poison()
    }

    /// Returns all keyspaces of the store.
    pub fn keyspaces(&self) -> Vec<Arc<KeyspaceState>> {
        self.keyspaces.read().ignore_poison().clone()
    }

    /// Bytes of all tables, without long values in files of their own.
    pub fn table_file_bytes(&self) -> u64 {
        self.keyspaces().iter().map(|keyspace| keyspace.table_file_bytes()).sum()
    }

    /// Returns the keyspace called `name`.
    pub fn keyspace(&self, name: &str) -> Option<Arc<KeyspaceState>> {
        self.keyspaces().into_iter().find(|keyspace| keyspace.name == name)
    }

    /// Adds a keyspace to the store. REQUIRES: the caller holds the manifest lock.
    pub fn add_keyspace(&self, keyspace: Arc<KeyspaceState>) {
        self.keyspaces.write().ignore_poison().push(keyspace);
    }

    /// Removes a keyspace from the store. REQUIRES: the caller holds the manifest lock.
    pub fn remove_keyspace(&self, id: u32) {
        let mut keyspaces = self.keyspaces.write().ignore_poison();
        keyspaces.retain(|keyspace| keyspace.id != id);
    }

    /// Returns an error if the store was closed, or was opened by a process that forked this one.
    /// Takes no lock.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.open.is_open() { Ok(()) } else { Err(self.not_open_error()) }
    }

    #[cold]
    fn not_open_error(&self) -> Error {
        match self.open.state() {
            OpenState::Forked => Error::Forked(self.folder.clone()),
            OpenState::Open | OpenState::Closed => Error::Closed,
        }
    }

    /// Returns an error in a forked child, where the store counts as closed, too. Takes no lock.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.open.is_forked() { Err(self.not_open_error()) } else { Ok(()) }
    }

    /// Returns an error if the store refuses writes.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.manifest()?;
        self.fatal_error.check()
    }

    /// Records `error` as the reason why the store refuses writes, unless `error` is transient; see
    /// [`FatalError::set_unless_transient`].
    pub fn set_fatal_error(&self, error: Error) -> Error {
        self.fatal_error.set_unless_transient(error)
    }

    /// Records the present time for snapshots and cursors that have no time yet.
    pub fn note_time(&self) {
        let now = self.options.env.clock.now();
        self.snapshots.note_time(now);
        self.keyspaces().iter().for_each(|keyspace| keyspace.super_version.note_time(now));
    }

    /// Wakes the threads that wait for background work.
    pub fn signal(&self) {
        self.scheduler_lock().ticks += 1;
        self.changed.notify_all();
    }

    /// Releases the snapshot at `sequence`, which [`SnapshotList::acquire`] took, and wakes the
    /// threads that wait for its release. Does nothing in a forked child.
    pub fn release(&self, sequence: SequenceNumber) {
        if !self.open.is_forked() && self.snapshots.release(sequence) {
            self.signal();
        }
    }

    /// Waits until the store signals a change, for at most `limit`; returns at once if `done`
    /// returns `true`.
    pub fn wait_for_change(&self, limit: Duration, done: impl Fn() -> bool) {
        let work = self.scheduler_lock();
        if !done() {
            drop(self.changed.wait_timeout(work, limit).ignore_poison());
        }
    }
}
