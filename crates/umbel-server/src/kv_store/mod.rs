//! [`KvStore`]: the key-value store as its calls use it. No other module calls the engine.
//!
//! One thread does all writes, in the order of their arrival, and sends each write to the matching
//! watches. The store has no other writer, because only one process may open a store for writing.
//! So the store's sequence number after a write is the number of that write. A watch that begins
//! between two writes receives all later writes and no earlier one. One sync serves all waiting
//! writes.

mod kv_scanner;
mod kv_writer;
mod watch_hub;
mod write_request;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::damage_count::DamageCount;
use umbel_base::ignore_poison::IgnorePoison;

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel::limits::KEYSPACES_MAX;
use umbel::{Db, DirectoryStats, Error, Keyspace, KeyspaceOptions, Snapshot};
use umbel_env::{Env, JoinHandle};
use umbel_proto::kv::DEFAULT_KEYSPACE;

pub use kv_scanner::ReadError;
pub use kv_scanner::{ScanPage, ScanRange, Scanner, check_value_size};
pub use watch_hub::{WatchFilter, Watcher};
pub use write_request::{WriteCondition, WriteOperation, WriteRequest};

use crate::limits::{INLINE_EVENTS_MAX, SCAN_TIME};
use crate::resources::inline_execution::InlinePolicy;
use crate::resources::outbound_quota::PageReservation;
use kv_writer::{KvWriter, WriterJob};
use watch_hub::WatchCounts;

/// Configuration of the key-value store that a server serves besides its events.
#[derive(Debug, Clone)]
pub struct KvConfig {
    /// The store. The caller that opened it closes it, after the server has stopped.
    ///
    /// REQUIRES: the store has no other writer while it is served, since watches would miss its
    /// writes.
    pub db: Db,
    /// Whether every write is acknowledged only after a sync.
    pub sync: bool,
    /// Time limit of a scan from its first message to its last.
    pub scan_time: Duration,
}

/// The key-value store as its calls use it.
#[derive(Debug)]
pub struct KvStore {
    db: Db,
    jobs: mpsc::UnboundedSender<WriterJob>,
    inline_reads: InlinePolicy,
    scan_time: Duration,
    watch_counts: Arc<WatchCounts>,
    create_lock: Arc<Mutex<()>>,
    damage: DamageCount,
}

/// Statistics of the key-value store for operators.
#[derive(Debug)]
pub struct KvStats {
    /// Statistics of the engine.
    pub engine: umbel::Stats,
    /// Number of active watches.
    pub watches: usize,
    /// Number of watches that ended because their clients did not keep up.
    pub watches_evicted: u64,
    /// Number of errors about damaged data.
    pub damage_errors: u64,
}

/// Receiver of the result of a job.
type Reply<T> = oneshot::Receiver<T>;

impl KvConfig {
    /// Serves this store with default settings.
    pub fn new(db: Db) -> KvConfig {
        KvConfig { db, sync: false, scan_time: SCAN_TIME }
    }
}

impl KvStore {
    /// Reason why all writes are refused until a restart; `None` while writes are accepted.
    pub fn failure(&self) -> Option<String> {
        self.db.failure()
    }

    /// Opens the service on the store, and starts the writer thread. The thread ends once the
    /// service is dropped.
    pub fn new(what: KvConfig, env: &Env) -> umbel::Result<(KvStore, Box<dyn JoinHandle>)> {
        let KvConfig { db, sync, scan_time } = what;
        db.keyspace(DEFAULT_KEYSPACE, None)?;
        // Bounded by the number of calls: each waits for its reply.
        let (jobs, taken) = mpsc::unbounded_channel();
        let counts = Arc::new(WatchCounts::default());
        let damage = DamageCount::default();
        let writer = KvWriter::new(db.clone(), sync, Arc::clone(&counts), damage.clone());
        let thread = env.threads.spawn("umbel-kv", Box::new(move || writer.run(taken)))?;
        let (quick, creating) = (InlinePolicy::new(env), Arc::default());
        Ok((
            KvStore {
                db,
                jobs,
                inline_reads: quick,
                scan_time,
                watch_counts: counts,
                create_lock: creating,
                damage,
            },
            thread,
        ))
    }

    /// Time limit of a scan.
    pub fn scan_time(&self) -> Duration {
        self.scan_time
    }

    /// Returns the keyspace of this name, if it exists.
    pub fn keyspace(&self, name: &str) -> umbel::Result<Option<Keyspace>> {
        self.damage.record(self.db.existing_keyspace(name))
    }

    /// Names of all keyspaces.
    pub fn keyspaces(&self) -> Vec<String> {
        self.db.keyspaces()
    }

    /// Creates a keyspace. Returns whether the name was free; `None` if it was, and the store has
    /// `keyspaces_max` keyspaces or more.
    pub async fn create_keyspace(
        &self,
        name: String,
        keyspaces_max: usize,
    ) -> umbel::Result<Option<bool>> {
        let (db, creating) = (self.db.clone(), Arc::clone(&self.create_lock));
        let created = blocking(move || {
            // Of several concurrent calls one creates it.
            let _one = creating.lock().ignore_poison();
            let is_new = db.existing_keyspace(&name)?.is_none();
            // The engine has a limit of its own, and an error for it.
            if is_new && keyspaces_max < KEYSPACES_MAX && db.keyspaces().len() >= keyspaces_max {
                return Ok(None);
            }
            db.keyspace(&name, None::<KeyspaceOptions>)?;
            Ok::<_, Error>(Some(is_new))
        });
        self.damage.record(created.await)
    }

    /// Drops a keyspace between two writes, and ends its watches. The reply is whether the keyspace
    /// existed. The channel fails if the server stops before.
    pub fn drop_keyspace(&self, name: String) -> Reply<umbel::Result<bool>> {
        let (sender, answer) = oneshot::channel();
        let _ = self.jobs.send(WriterJob::DropKeyspace(name, sender));
        answer
    }

    /// Sends a write to the writer thread. The reply is the write's sequence number, once the write
    /// has the requested durability. The channel fails if the server stops before.
    pub fn submit(&self, write: WriteRequest) -> Reply<umbel::Result<u64>> {
        let (sender, answer) = oneshot::channel();
        // If the thread has ended, the sender is dropped, and the waiting caller notices.
        let _ = self.jobs.send(WriterJob::Write(Box::new(write), sender));
        answer
    }

    /// Begins a watch. The reply is the watcher and a snapshot from before the watcher's first
    /// change.
    pub fn watch(&self, what: WatchFilter) -> Reply<Result<(Watcher, Snapshot), Status>> {
        let (sender, answer) = oneshot::channel();
        let _ = self.jobs.send(WriterJob::Watch(what, sender));
        answer
    }

    /// Takes a snapshot of the present state.
    pub fn snapshot(&self) -> Snapshot {
        self.db.snapshot()
    }

    /// State of the store's directory.
    pub async fn directory(&self) -> Option<DirectoryStats> {
        let db = self.db.clone();
        tokio::task::spawn_blocking(move || db.directory()).await.ok()
    }

    /// Syncs all commits; returns `None` if the sync failed.
    pub async fn sync(&self) -> Option<()> {
        let db = self.db.clone();
        let synced = tokio::task::spawn_blocking(move || db.sync()).await.ok()?;
        self.damage.record(synced).ok()
    }

    /// Returns the statistics; `None` if their task failed.
    pub async fn stats(&self) -> Option<KvStats> {
        let db = self.db.clone();
        let engine = tokio::task::spawn_blocking(move || db.stats()).await.ok()?;
        let watches = self.watch_counts.watches.load(Ordering::Relaxed);
        Some(KvStats {
            engine,
            watches,
            watches_evicted: self.watch_counts.evicted.load(Ordering::Relaxed),
            damage_errors: self.damage_errors(),
        })
    }

    /// Number of errors for damaged data.
    pub fn damage_errors(&self) -> u64 {
        self.damage.count()
    }

    /// Reads a few keys within this reservation, inline if inline reads are fast, otherwise on a
    /// blocking thread.
    pub async fn read<T: Send + 'static>(
        &self,
        keys: usize,
        reservation: PageReservation,
        work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
    ) -> Result<(T, PageReservation), Status> {
        if keys <= INLINE_EVENTS_MAX && self.inline_reads.is_allowed() {
            let read = self.damage.record(self.inline_reads.run(work));
            return Ok((read.map_err(|failed| failed.0)?, reservation));
        }
        let read = self.damage.record(blocking_in(reservation, work).await);
        read.map_err(|failed| failed.0)
    }

    /// Reads the next page of a scan within this reservation.
    pub async fn page(
        &self,
        scanner: Scanner,
        snapshot: Snapshot,
        reservation: PageReservation,
    ) -> Result<((ScanPage, Scanner), PageReservation), Status> {
        let page = blocking_in(reservation, move || scanner.page(&snapshot)).await;
        self.damage.record(page).map_err(|failed| failed.0)
    }
}

/// Runs work that may wait for the disk. Keeps the reservation until the work is done, even if its
/// caller has dropped the future.
async fn blocking_in<T: Send + 'static>(
    reservation: PageReservation,
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<(T, PageReservation), ReadError> {
    let (done, reservation) = reservation.fill_blocking(work).await?;
    Ok((done?, reservation))
}

/// Runs work that may wait for the disk.
async fn blocking<T: Send + 'static, E: From<Error> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Error::Closed.into()))
}
