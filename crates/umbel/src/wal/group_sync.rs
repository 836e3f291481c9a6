//! Group sync: one fsync serves all waiting writers.
//!
//! A writer waits for the running sync if that sync began after the writer's record was appended; a
//! later writer waits for the next sync. The end of a sync wakes the writers that it served, and
//! one later writer, which does the next sync. No thread takes the commit lock for a group sync.
//!
//! Writers that a sync served soon come back, and would find the next sync running: each sync would
//! serve half of the writers. So a writer waits briefly before its sync, until as many writers have
//! come as recently. Writers do not wait before a sync while such waits have found no other
//! writers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Result, SequenceNumber};
use umbel_env::{Clock, FileSystem};
use umbel_log::LogProgress;

use crate::fs::fatal_error::FatalError;
use crate::fs::filenames;
use crate::thread_counters::{StoreCounters, add};

/// The part of the WAL that is not known to be durable. The thread that holds the commit lock adds
/// to this part, and the thread that syncs removes from it.
#[derive(Debug)]
pub struct UnsyncedTail {
    /// The segments that were begun and are not known to be durable, oldest first, up to the
    /// current one.
    segments: Mutex<Vec<Arc<LogProgress>>>,
    /// The newest sequence number appended.
    through: AtomicU64,
}

impl UnsyncedTail {
    /// Creates the tail of a WAL in which every record up to sequence number `through` is durable.
    pub fn new(through: SequenceNumber) -> UnsyncedTail {
        UnsyncedTail { segments: Mutex::default(), through: AtomicU64::new(through) }
    }

    fn segments(&self) -> MutexGuard<'_, Vec<Arc<LogProgress>>> {
        self.segments.lock().ignore_poison()
    }

    /// Adds a segment. REQUIRES: the segment has no record yet.
    pub fn add(&self, segment: Arc<LogProgress>) {
        self.segments().push(segment);
    }

    /// Removes a segment that is no longer needed.
    pub fn remove(&self, id: u64) {
        self.segments().retain(|segment| segment.log_id() != id);
    }

    /// Whether segment `id` is still in the tail.
    fn contains(&self, id: u64) -> bool {
        self.segments().iter().any(|segment| segment.log_id() == id)
    }

    /// Records that all writes up to `sequence` were appended.
    #[inline]
    pub fn set_through(&self, sequence: SequenceNumber) {
        self.through.store(sequence, Ordering::Release);
    }

    /// Returns what a sync that begins now covers: the newest sequence number and the segments.
    /// Loads the number first, so that the segments hold its record.
    pub(super) fn snapshot(&self) -> (SequenceNumber, Vec<Arc<LogProgress>>) {
        let through = self.through.load(Ordering::Acquire);
        (through, self.segments().clone())
    }

    /// Removes segments that are durable, except the last one, which still grows.
    fn remove_synced(&self) {
        let mut segments = self.segments();
        let last = segments.last().map(|segment| segment.log_id());
        segments.retain(|it| Some(it.log_id()) == last || it.durable() < it.end());
    }
}

/// Group sync of the WAL.
#[derive(Debug)]
pub struct GroupSync {
    tail: Arc<UnsyncedTail>,
    /// File system that holds the store's directory open.
    files: Arc<dyn FileSystem>,
    directory: PathBuf,
    fatal_error: Arc<FatalError>,
    clock: Arc<dyn Clock>,
    progress: Mutex<SyncProgress>,
    /// Writers that wait for the end of a sync: the first condition variable for syncs with an even
    /// number, the second for those with an odd number.
    turns: [Condvar; 2],
    /// Signals the writer that waits for other writers before its sync.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct SyncProgress {
    /// All writes up to this sequence number are durable.
    through: SequenceNumber,
    /// Newest sequence number that the running sync covers; [`GATHERING`] while its writer waits
    /// for other writers.
    running: Option<SequenceNumber>,
    /// The number of the running sync, or of the last one.
    round: usize,
    /// Number of writers that wait for a sync with an even number, and with an odd number.
    waiting: [usize; 2],
    /// Number of writers at the end of the last sync: the one that synced, and those that waited
    /// for that sync or the next.
    recent_waiters: usize,
    /// Number of further syncs that begin without waiting for other writers.
    rounds_without_gathering: usize,
    /// Duration of the last sync.
    last_duration: Duration,
}

/// Value of `running` while the writer of the sync waits for other writers. The sync will cover all
/// writes appended by its start.
const GATHERING: SequenceNumber = SequenceNumber::MAX;
/// Number of syncs that begin without waiting for other writers, after a wait in which none came.
const ROUNDS_WITHOUT_GATHERING: usize = 16;
/// Longest wait for other writers: one part in the first number of the last sync's duration, at
/// most the second value.
const GATHER: (u32, Duration) = (2, Duration::from_millis(5));

impl GroupSync {
    /// Creates the group sync of `tail` in a directory. REQUIRES: `files` holds the directory open.
    pub fn new(
        tail: Arc<UnsyncedTail>,
        files: Arc<dyn FileSystem>,
        directory: PathBuf,
        fatal_error: Arc<FatalError>,
        clock: Arc<dyn Clock>,
    ) -> GroupSync {
        let (progress, turns, gathered) = Default::default();
        GroupSync { tail, files, directory, fatal_error, clock, progress, turns, gathered }
    }

    /// Returns an error if the directory was removed, or a WAL segment was removed or replaced.
    /// Writes synced into such a segment are lost when the handle closes.
    pub fn check_present(&self) -> Result<()> {
        let (_, segments) = self.tail.snapshot();
        self.check_named(&segments)?;
        fail_point!("sync-skip-directory-check", |_| Ok(()));
        self.files.check_directory(&self.directory)
    }

    fn check_named(&self, segments: &[Arc<LogProgress>]) -> Result<()> {
        fail_point!("sync-skip-directory-check", |_| Ok(()));
        for segment in segments {
            let id = segment.log_id();
            // A segment that is no longer needed may have been removed meanwhile.
            if let Err(replaced) = self.files.check_named(&filenames::segment(&self.directory, id))
                && self.tail.contains(id)
            {
                return Err(replaced);
            }
        }
        Ok(())
    }

    fn progress(&self) -> MutexGuard<'_, SyncProgress> {
        self.progress.lock().ignore_poison()
    }

    /// Returns once all writes up to `sequence` are durable. A failed sync is fatal for the store,
    /// and all waiting writers get its error. REQUIRES: the write at `sequence` was appended.
    pub fn sync_through(&self, sequence: SequenceNumber, counters: &StoreCounters) -> Result<()> {
        let mut progress = self.progress();
        while progress.through < sequence {
            if let Err(error) = self.fatal_error.check() {
                // A writer woken to do the next sync must wake the others too.
                self.turns.iter().for_each(Condvar::notify_all);
                return Err(error);
            }
            // A sync that begins now covers this writer's record.
            let Some(covered) = progress.running else {
                return self.sync(progress, counters);
            };
            let turn = (progress.round + usize::from(sequence > covered)) % 2;
            progress.waiting[turn] += 1;
            if covered == GATHERING && progress.waiting[turn] + 1 >= progress.recent_waiters {
                self.gathered.notify_one();
            }
            progress = self.turns[turn].wait(progress).ignore_poison();
            progress.waiting[turn] -= 1;
        }
        Ok(())
    }

    /// Waits until as many writers wait for the sync as recently, unless none came in a recent
    /// wait.
    fn gather<'a>(
        &self,
        mut progress: MutexGuard<'a, SyncProgress>,
    ) -> MutexGuard<'a, SyncProgress> {
        let (turn, expected_waiters) = (progress.round % 2, progress.recent_waiters);
        if expected_waiters < 2 || progress.rounds_without_gathering > 0 {
            progress.rounds_without_gathering = progress.rounds_without_gathering.saturating_sub(1);
            return progress;
        }
        let limit = GATHER.1.min(progress.last_duration / GATHER.0);
        let few = |progress: &mut SyncProgress| progress.waiting[turn] + 1 < expected_waiters;
        let waited = self.gathered.wait_timeout_while(progress, limit, few);
        let (mut progress, outcome) = waited.ignore_poison();
        if outcome.timed_out() {
            progress.rounds_without_gathering = ROUNDS_WITHOUT_GATHERING;
        }
        progress
    }

    fn sync(
        &self,
        mut progress: MutexGuard<'_, SyncProgress>,
        counters: &StoreCounters,
    ) -> Result<()> {
        progress.round += 1;
        progress.running = Some(GATHERING);
        progress = self.gather(progress);
        let (through, segments) = self.tail.snapshot();
        progress.running = Some(through);
        drop(progress);
        add(&counters.log_syncs, 1);
        let begun = self.clock.now();
        // Older segments first.
        let synced = segments.iter().try_for_each(|segment| segment.sync());
        let synced = synced.and_then(|()| self.check_named(&segments));
        let took = self.clock.now().saturating_sub(begun);
        let synced = synced.map_err(|error| self.fatal_error.set(error));
        if segments.len() > 1 {
            self.tail.remove_synced();
        }
        let mut progress = self.progress();
        progress.running = None;
        if synced.is_ok() {
            progress.through = progress.through.max(through);
        }
        let (served, next) = (progress.round % 2, (progress.round + 1) % 2);
        progress.last_duration = took;
        progress.recent_waiters = 1 + progress.waiting[served] + progress.waiting[next];
        let waiting = [progress.waiting[served] > 0, progress.waiting[next] > 0];
        drop(progress);
        if waiting[1] {
            // One of them does the next sync; after a failure all must wake.
            match &synced {
                Ok(()) => self.turns[next].notify_one(),
                Err(_) => self.turns[next].notify_all(),
            }
        }
        if waiting[0] {
            self.turns[served].notify_all();
        }
        synced
    }
}
