//! [`KvStore`]: the store of keys and values as the calls see it. Nothing else names its functions.
//!
//! One thread does all writes, in the order in which they came, and hands each to those who watch
//! what it wrote to. Nobody else writes, because a store is open once; so the number that the store
//! is at behind a write is that of the write, and a watch that begins between two writes is told
//! of all that follow and of none before. As many writes as wait are made durable by one sync.

mod feed;
mod scanner;
mod writer;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel::{Db, DirectoryStats, Error, Keyspace, KeyspaceOptions, Snapshot};
use umbel_env::{Env, JoinHandle};
use umbel_proto::kv::DEFAULT_KEYSPACE;

pub use feed::{Watched, Watcher};
pub use scanner::{Range, ScanPage, Scanner, fitting};
pub use writer::{Condition, Operation, Write};

use crate::failure;
use crate::limits::{QUICK_EVENTS_MAX, SCAN_TIME};
use crate::quick::Quick;
use crate::unread::Room;
use feed::Counts;
use writer::{Job, Writer};

/// The keys and values that a server serves besides its events.
#[derive(Debug, Clone)]
pub struct KeyValues {
    /// The store. Who opened it closes it, after the server has stopped.
    ///
    /// REQUIRES: nobody else writes to it meanwhile. Watches would not be told.
    pub db: Db,
    /// Whether every write is answered once it survives power loss.
    pub sync: bool,
    /// How long a scan may take from its first message to its last.
    pub scan_time: Duration,
}

/// The store of keys and values as the calls see it.
#[derive(Debug)]
pub struct KvStore {
    db: Db,
    jobs: mpsc::UnboundedSender<Job>,
    quick: Quick,
    scan_time: Duration,
    counts: Arc<Counts>,
    creating: Arc<Mutex<()>>,
}

/// What a store of keys and values has and does, for whoever watches over it.
#[derive(Debug)]
pub struct KvStats {
    /// That of the engine.
    pub engine: umbel::Stats,
    /// How many watches go on,
    pub watches: usize,
    /// and how many were let go because they did not keep up.
    pub let_go: u64,
}

/// What a call for something of the store comes to.
type Answer<T> = oneshot::Receiver<T>;

/// What a client is told of a read that failed.
#[derive(Debug)]
pub struct ReadFailed(pub Status);

impl From<Error> for ReadFailed {
    fn from(error: Error) -> ReadFailed {
        ReadFailed(failure::of_engine(&error))
    }
}

impl KeyValues {
    /// What lies in this store.
    pub fn new(db: Db) -> KeyValues {
        KeyValues { db, sync: false, scan_time: SCAN_TIME }
    }
}

impl KvStore {
    /// Why no write is taken any more until the server is started again, if none is.
    pub fn failure(&self) -> Option<String> {
        self.db.failure()
    }

    /// The store, and the thread that writes. It ends once this is dropped.
    pub fn new(what: KeyValues, env: &Env) -> umbel::Result<(KvStore, Box<dyn JoinHandle>)> {
        let KeyValues { db, sync, scan_time } = what;
        db.keyspace(DEFAULT_KEYSPACE, None)?;
        // It holds no more than the calls do: each waits for the answer.
        let (jobs, taken) = mpsc::unbounded_channel();
        let counts = Arc::new(Counts::default());
        let writer = Writer::new(db.clone(), sync, Arc::clone(&counts));
        let thread = env.threads.spawn("umbel-kv", Box::new(move || writer.run(taken)))?;
        let (quick, creating) = (Quick::new(env), Arc::default());
        Ok((KvStore { db, jobs, quick, scan_time, counts, creating }, thread))
    }

    /// How long a scan may take.
    pub fn scan_time(&self) -> Duration {
        self.scan_time
    }

    /// The keyspace of this name, where there is one.
    pub fn keyspace(&self, name: &str) -> umbel::Result<Option<Keyspace>> {
        self.db.existing_keyspace(name)
    }

    /// The names of all keyspaces.
    pub fn keyspaces(&self) -> Vec<String> {
        self.db.keyspaces()
    }

    /// Makes a keyspace. Whether there was none of this name.
    pub async fn create_keyspace(&self, name: String) -> umbel::Result<bool> {
        let (db, creating) = (self.db.clone(), Arc::clone(&self.creating));
        blocking(move || {
            // Of several who ask at once one makes it.
            let _one = creating.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = db.existing_keyspace(&name)?.is_none();
            db.keyspace(&name, None::<KeyspaceOptions>)?;
            Ok::<_, Error>(is_new)
        })
        .await
    }

    /// Hands a write to the thread that writes. The answer is its number, once it is as durable as
    /// was asked for; it is an error of the channel where the server stops before.
    pub fn submit(&self, write: Write) -> Answer<umbel::Result<u64>> {
        let (sender, answer) = oneshot::channel();
        // Where the thread has ended, so has the sender, and whoever waits learns that.
        let _ = self.jobs.send(Job::Write(Box::new(write), sender));
        answer
    }

    /// Begins to watch. The answer is who is told, and the state before everything he is told.
    pub fn watch(&self, what: Watched) -> Answer<Result<(Watcher, Snapshot), Status>> {
        let (sender, answer) = oneshot::channel();
        let _ = self.jobs.send(Job::Watch(what, sender));
        answer
    }

    /// The present state.
    pub fn snapshot(&self) -> Snapshot {
        self.db.snapshot()
    }

    /// Where its directory is.
    pub async fn directory(&self) -> Option<DirectoryStats> {
        let db = self.db.clone();
        tokio::task::spawn_blocking(move || db.directory()).await.ok()
    }

    /// Makes durable what was committed; `None` where that failed.
    pub async fn sync(&self) -> Option<()> {
        let db = self.db.clone();
        tokio::task::spawn_blocking(move || db.sync()).await.ok()?.ok()
    }

    /// What it has and does.
    pub async fn stats(&self) -> Option<KvStats> {
        let db = self.db.clone();
        let engine = tokio::task::spawn_blocking(move || db.stats()).await.ok()?;
        let watches = self.counts.watches.load(Ordering::Relaxed);
        Some(KvStats { engine, watches, let_go: self.counts.let_go.load(Ordering::Relaxed) })
    }

    /// Reads few keys into this room, here where such reads are quick, else on a thread that may
    /// wait.
    pub async fn read<T: Send + 'static>(
        &self,
        keys: usize,
        room: Room,
        work: impl FnOnce() -> Result<T, ReadFailed> + Send + 'static,
    ) -> Result<(T, Room), Status> {
        if keys <= QUICK_EVENTS_MAX && self.quick.may() {
            let read = self.quick.time(work).map_err(|failed| failed.0)?;
            return Ok((read, room));
        }
        blocking_in(room, work).await
    }

    /// The next keys of a scan, in this room.
    pub async fn page(
        &self,
        scanner: Scanner,
        snapshot: Snapshot,
        room: Room,
    ) -> Result<((ScanPage, Scanner), Room), Status> {
        blocking_in(room, move || scanner.page(&snapshot)).await
    }
}

/// Does work that may wait for the disk, and holds this room until it is done, whether somebody
/// waits for it or not.
async fn blocking_in<T: Send + 'static>(
    room: Room,
    work: impl FnOnce() -> Result<T, ReadFailed> + Send + 'static,
) -> Result<(T, Room), Status> {
    // It may have to wait for a thread.
    room.is_made();
    let done = blocking(move || {
        let (done, room) = room.during(work);
        Ok((done?, room))
    });
    done.await.map_err(|failed: ReadFailed| failed.0)
}

/// Does work that may wait for the disk.
async fn blocking<T: Send + 'static, E: From<Error> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Error::Closed.into()))
}
