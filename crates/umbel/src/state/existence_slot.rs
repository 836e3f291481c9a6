//! [`ExistenceSlot`]: the existence filter of a keyspace, where it has one, as gets and puts meet
//! it. Who opens it, flushes it and takes it out is `existence_upkeep`.
//!
//! INVARIANT, why no key that a reader may see is denied:
//! 1. Under the commit lock a put goes into the memtable first, then into the filter, then it is
//!    published. A reader learns of it by the published number, or from whoever was told that it
//!    was done, so that he finds its bits set.
//! 2. The filter is put in and taken out under the commit lock. What was put before that is in the
//!    view, where the walk that fills the filter finds it, and until then the filter denies
//!    nothing. What is put after it was taken out is seen only by readers who find it gone.
//! 3. A reader of several keys asks it after he read the number that he looks at: all he may see
//!    was inserted then. A reader of one key may ask before, as if he had come at that moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwapOption;
use umbel_base::{Error, Result, SequenceNumber, ValueKind};
use umbel_existence::{ExistenceFilter, ExistenceStats};

use crate::options::ExistenceSize;

/// What is known of the files of a filter. Whoever reads or writes these holds the lock on it, so
/// that no two filters work on one folder.
#[derive(Debug)]
pub struct Files {
    /// The size that the filter was opened with.
    pub size: ExistenceSize,
    /// Everything up to this sequence number is in tables that no log has; a filter that covers
    /// less would not be believed by the next open.
    pub floor: SequenceNumber,
}

/// Where a keyspace has its existence filter.
#[derive(Debug)]
pub struct ExistenceSlot {
    /// Whether there is one. Apart, so that who has none pays for one branch.
    is_on: AtomicBool,
    filter: ArcSwapOption<ExistenceFilter>,
    files: Mutex<Files>,
    problem: Mutex<Option<Error>>,
    /// What the files say, where nothing may be written, so that there is no filter.
    described: OnceLock<Box<ExistenceStats>>,
}

impl Default for ExistenceSlot {
    fn default() -> ExistenceSlot {
        ExistenceSlot {
            is_on: AtomicBool::new(false),
            filter: ArcSwapOption::empty(),
            files: Mutex::new(Files { size: ExistenceSize::Off, floor: 0 }),
            problem: Mutex::default(),
            described: OnceLock::new(),
        }
    }
}

impl ExistenceSlot {
    /// Whether there is a filter to be asked.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The filter.
    pub fn filter(&self) -> Option<Arc<ExistenceFilter>> {
        self.filter.load_full()
    }

    /// Takes the lock on the files.
    pub fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a filter in, or takes it out. REQUIRES: the commit lock, or that nobody else has the
    /// keyspace yet.
    pub fn put(&self, filter: Option<ExistenceFilter>) {
        let is_on = filter.is_some();
        self.filter.store(filter.map(Arc::new));
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether the key with this hash was never put.
    #[inline]
    pub fn denies(&self, hash: u64) -> bool {
        self.filter.load().as_ref().is_some_and(|filter| !filter.may_contain(hash))
    }

    /// Answers for each hash whether it may have been put. All may where there is no filter.
    pub fn may_contain_batch(&self, hashes: &[u64], answers: &mut [bool]) {
        match &*self.filter.load() {
            Some(filter) => filter.may_contain_batch(hashes, answers),
            None => answers.fill(true),
        }
    }

    /// Notes that so many keys which it did not deny are not there.
    #[cold]
    pub fn note_in_vain(&self, count: usize) {
        if let Some(filter) = &*self.filter.load() {
            (0..count).for_each(|_| filter.note_in_vain());
        }
    }

    /// Takes in what was written to a key. REQUIRES: the commit lock; it is in the memtable, and
    /// not published.
    #[inline(never)]
    pub fn note_write(&self, kind: ValueKind, hash: u64) {
        // A key that was only ever deleted is as one that never was.
        if kind != ValueKind::Delete
            && let Some(filter) = &*self.filter.load()
        {
            filter.insert(hash);
        }
    }

    /// Takes in what was replayed of the log, unless the filter has it. REQUIRES: as
    /// [`ExistenceSlot::note_write`], and that nothing was flushed since the filter was opened.
    pub fn note_replayed(&self, sequence: SequenceNumber, kind: ValueKind, hash: u64) {
        let covered = self.filter.load().as_ref().map_or(u64::MAX, |filter| filter.covered());
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::ExistenceReplayForgotten.is_on() {
            return;
        }
        if sequence > covered {
            self.note_write(kind, hash);
        }
    }

    /// What the filter says about itself, or its files do; `None` where there is none.
    pub fn stats(&self) -> Option<ExistenceStats> {
        let of_filter = self.filter().map(|filter| filter.stats());
        of_filter.or_else(|| self.described.get().map(|told| (**told).clone()))
    }

    /// Notes what the files say, or why they say nothing.
    pub fn note_described(&self, described: Result<ExistenceStats>) {
        match described {
            Ok(stats) => drop(self.described.set(Box::new(stats))),
            Err(error) => self.note_problem(Some(error)),
        }
    }

    /// Why its upkeep failed last, until it is done.
    pub fn problem(&self) -> Option<String> {
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        problem.as_ref().map(Error::without_remedy)
    }

    /// Notes why its upkeep failed, or that it did not.
    pub fn note_problem(&self, problem: Option<Error>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Bytes of memory of the filter.
    pub fn memory_bytes(&self) -> u64 {
        if !self.is_on() {
            return 0;
        }
        self.filter.load().as_ref().map_or(0, |filter| filter.memory_bytes())
    }
}
