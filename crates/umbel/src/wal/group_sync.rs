//! The one sync that serves all who wait.
//!
//! Who waits while a sync runs that began after his record was appended waits for its end; who came
//! later waits for the next one. So the end of a sync wakes those it served, and of the others one,
//! who does the next. Nobody takes the commit lock.
//!
//! Writers who were served come back soon, and would find the next sync running: half of them would
//! wait for every other one. So who is to sync waits a moment for as many as there were of late,
//! as long as they do come.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbel_base::{Result, SequenceNumber};
use umbel_env::{Clock, FileSystem};
use umbel_log::LogProgress;

use crate::counters::{StoreCounters, add};
use crate::names;
use crate::poison::Poison;

/// What of the log is not known to be durable. The thread that holds the commit lock adds to it,
/// the one that syncs takes from it.
#[derive(Debug)]
pub struct Tail {
    /// The segments that were begun, oldest first, up to the current one.
    segments: Mutex<Vec<Arc<LogProgress>>>,
    /// The newest sequence number appended.
    through: AtomicU64,
}

impl Tail {
    /// The end of a log whose every record up to `through` is durable.
    pub fn new(through: SequenceNumber) -> Tail {
        Tail { segments: Mutex::default(), through: AtomicU64::new(through) }
    }

    fn segments(&self) -> MutexGuard<'_, Vec<Arc<LogProgress>>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a segment before a record is put in it.
    pub fn add(&self, segment: Arc<LogProgress>) {
        self.segments().push(segment);
    }

    /// Takes out a segment that nobody needs any more.
    pub fn remove(&self, id: u64) {
        self.segments().retain(|segment| segment.log_id() != id);
    }

    /// Whether a segment is needed still.
    fn holds(&self, id: u64) -> bool {
        self.segments().iter().any(|segment| segment.log_id() == id)
    }

    /// Notes that everything up to `sequence` was appended.
    #[inline]
    pub fn set_through(&self, sequence: SequenceNumber) {
        self.through.store(sequence, Ordering::Release);
    }

    /// What a sync that begins now covers: the number first, so that the segments hold it.
    pub(super) fn begin(&self) -> (SequenceNumber, Vec<Arc<LogProgress>>) {
        let through = self.through.load(Ordering::Acquire);
        (through, self.segments().clone())
    }

    /// Lets go of old segments that are durable. The last one grows.
    fn end(&self) {
        let mut segments = self.segments();
        let last = segments.last().map(|segment| segment.log_id());
        segments.retain(|it| Some(it.log_id()) == last || it.durable() < it.end());
    }
}

/// One sync for all who wait.
#[derive(Debug)]
pub struct Syncer {
    tail: Arc<Tail>,
    /// Held at the store's directory.
    files: Arc<dyn FileSystem>,
    directory: PathBuf,
    progress: Mutex<Progress>,
    /// Who waits for the end of a sync with an even number, and with an odd one.
    turns: [Condvar; 2],
    /// Where who is to sync waits for others.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// Everything up to here is durable.
    through: SequenceNumber,
    /// What the sync that runs covers; [`GATHERING`] before that is decided.
    running: Option<SequenceNumber>,
    /// The number of the sync that runs, or of the last one.
    round: usize,
    /// How many wait in each turn.
    waiting: [usize; 2],
    /// How many waited for the last sync and the next one, or did it, when it ended.
    crowd: usize,
    /// How many syncs are to begin without waiting for others.
    unhopeful: usize,
    /// How long the last sync took.
    took: Duration,
}

/// What a sync covers to which others may come yet: everything appended by then.
const GATHERING: SequenceNumber = SequenceNumber::MAX;
/// After others were waited for in vain so many syncs begin without.
const UNHOPEFUL: usize = 16;
/// The part of the time that a sync takes, and the most, for which others are waited for.
const GATHER: (u32, Duration) = (2, Duration::from_millis(5));

impl Syncer {
    /// Syncs what `tail` says, in a directory. REQUIRES: `files` are held at it.
    pub fn new(tail: Arc<Tail>, files: Arc<dyn FileSystem>, directory: PathBuf) -> Syncer {
        let (turns, gathered) = Default::default();
        Syncer { tail, files, directory, progress: Mutex::default(), turns, gathered }
    }

    /// An error where the directory was removed, or a segment of the log was removed or replaced:
    /// what is synced in it goes with this handle.
    pub fn check_kept(&self) -> Result<()> {
        let (_, segments) = self.tail.begin();
        self.check_named(&segments)?;
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::RemovedDirectorySynced.is_on() {
            return Ok(());
        }
        self.files.check_kept(&self.directory)
    }

    fn check_named(&self, segments: &[Arc<LogProgress>]) -> Result<()> {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::RemovedDirectorySynced.is_on() {
            return Ok(());
        }
        for segment in segments {
            let id = segment.log_id();
            // One that is not needed any more may have been removed meanwhile.
            if let Err(replaced) = self.files.check_named(&names::log(&self.directory, id))
                && self.tail.holds(id)
            {
                return Err(replaced);
            }
        }
        Ok(())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once everything up to `sequence` is durable. A failed sync poisons the store and
    /// fails all who wait.
    /// REQUIRES: it was appended.
    pub fn sync_through(
        &self,
        sequence: SequenceNumber,
        poison: &Poison,
        counters: &StoreCounters,
        clock: &dyn Clock,
    ) -> Result<()> {
        let mut progress = self.progress();
        while progress.through < sequence {
            if let Err(error) = poison.check() {
                // Whoever was woken to do the next sync passes the news on.
                self.turns.iter().for_each(Condvar::notify_all);
                return Err(error);
            }
            // Its own record is covered by a sync that begins now.
            let Some(covered) = progress.running else {
                return self.sync(progress, poison, counters, clock);
            };
            let turn = (progress.round + usize::from(sequence > covered)) % 2;
            progress.waiting[turn] += 1;
            if covered == GATHERING && progress.waiting[turn] + 1 >= progress.crowd {
                self.gathered.notify_one();
            }
            progress = self.turns[turn].wait(progress).unwrap_or_else(PoisonError::into_inner);
            progress.waiting[turn] -= 1;
        }
        Ok(())
    }

    /// Waits for as many as there were of late, where that was not in vain.
    fn gather<'a>(&self, mut progress: MutexGuard<'a, Progress>) -> MutexGuard<'a, Progress> {
        let (turn, crowd) = (progress.round % 2, progress.crowd);
        if crowd < 2 || progress.unhopeful > 0 {
            progress.unhopeful = progress.unhopeful.saturating_sub(1);
            return progress;
        }
        let limit = GATHER.1.min(progress.took / GATHER.0);
        let few = |progress: &mut Progress| progress.waiting[turn] + 1 < crowd;
        let waited = self.gathered.wait_timeout_while(progress, limit, few);
        let (mut progress, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        if outcome.timed_out() {
            progress.unhopeful = UNHOPEFUL;
        }
        progress
    }

    fn sync(
        &self,
        mut progress: MutexGuard<'_, Progress>,
        poison: &Poison,
        counters: &StoreCounters,
        clock: &dyn Clock,
    ) -> Result<()> {
        progress.round += 1;
        progress.running = Some(GATHERING);
        progress = self.gather(progress);
        let (through, segments) = self.tail.begin();
        progress.running = Some(through);
        drop(progress);
        add(&counters.log_syncs, 1);
        let begun = clock.now();
        // Older segments first.
        let synced = segments.iter().try_for_each(|segment| segment.sync());
        let synced = synced.and_then(|()| self.check_named(&segments));
        let took = clock.now().saturating_sub(begun);
        let synced = synced.map_err(|error| poison.set(error));
        if segments.len() > 1 {
            self.tail.end();
        }
        let mut progress = self.progress();
        progress.running = None;
        if synced.is_ok() {
            progress.through = progress.through.max(through);
        }
        let (served, next) = (progress.round % 2, (progress.round + 1) % 2);
        progress.took = took;
        progress.crowd = 1 + progress.waiting[served] + progress.waiting[next];
        let waiting = [progress.waiting[served] > 0, progress.waiting[next] > 0];
        drop(progress);
        if waiting[1] {
            // One of them does the next; where that is in vain, all have to know.
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
