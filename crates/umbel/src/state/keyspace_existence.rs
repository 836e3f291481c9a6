//! [`KeyspaceExistence`]: the existence filter of a keyspace, if it has one, for gets and puts.
//! `existence_maintenance` opens, flushes and removes it.
//!
//! INVARIANT: the filter rejects no key that a reader may see:
//! 1. Under the commit lock a put goes into the memtable first, then into the filter, and then it
//!    is published. A reader learns of it by the published number, or from a writer whose put has
//!    returned, so it finds the bits set.
//! 2. The filter is installed and removed under the commit lock. Earlier puts are in the super
//!    version, where the scan that fills the filter finds them; until then the filter rejects
//!    nothing. Puts after the removal are visible only to readers that find the filter gone.
//! 3. A reader of several keys probes the filter after it read its sequence number: all keys
//!    visible to it were inserted then. A reader of one key may probe before that, as if it had
//!    read at that moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use arc_swap::ArcSwapOption;
use umbel_base::{Error, Result, SequenceNumber, ValueKind};
use umbel_existence::{ExistenceFilter, ExistenceStats};

use crate::options::ExistenceSize;

/// State of the filter's files. A thread that reads or writes the files holds its lock, so that no
/// two filters use one directory.
#[derive(Debug)]
pub struct ExistenceFiles {
    /// The size that the filter was opened with.
    pub size: ExistenceSize,
    /// All writes up to this sequence number are in tables and no longer in the WAL. The next open
    /// rejects a filter that covers less.
    pub floor: SequenceNumber,
}

/// Holder of a keyspace's existence filter.
#[derive(Debug)]
pub struct KeyspaceExistence {
    /// Whether there is a filter. A separate field, so that keyspaces without one pay for one
    /// branch.
    is_on: AtomicBool,
    filter: ArcSwapOption<ExistenceFilter>,
    files: Mutex<ExistenceFiles>,
    problem: Mutex<Option<Error>>,
    /// Statistics from the files, if the store is read-only and loads no filter.
    stats_on_disk: OnceLock<Box<ExistenceStats>>,
}

impl Default for KeyspaceExistence {
    fn default() -> KeyspaceExistence {
        KeyspaceExistence {
            is_on: AtomicBool::new(false),
            filter: ArcSwapOption::empty(),
            files: Mutex::new(ExistenceFiles { size: ExistenceSize::Off, floor: 0 }),
            problem: Mutex::default(),
            stats_on_disk: OnceLock::new(),
        }
    }
}

impl KeyspaceExistence {
    /// Whether there is a filter to probe.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The filter.
    pub fn filter(&self) -> Option<Arc<ExistenceFilter>> {
        self.filter.load_full()
    }

    /// Locks the files.
    pub fn files(&self) -> MutexGuard<'_, ExistenceFiles> {
        self.files.lock().ignore_poison()
    }

    /// Installs or removes a filter. REQUIRES: the commit lock, or that no other thread has the
    /// keyspace yet.
    pub fn set_filter(&self, filter: Option<ExistenceFilter>) {
        let is_on = filter.is_some();
        self.filter.store(filter.map(Arc::new));
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether the key with this hash was never put.
    #[inline]
    pub fn denies(&self, hash: u64) -> bool {
        self.filter.load().as_ref().is_some_and(|filter| !filter.may_contain(hash))
    }

    /// Fills `answers`: whether the key of each hash may have been put. All `true` without a
    /// filter.
    pub fn may_contain_batch(&self, hashes: &[u64], answers: &mut [bool]) {
        match &*self.filter.load() {
            Some(filter) => filter.may_contain_batch(hashes, answers),
            None => answers.fill(true),
        }
    }

    /// Counts `count` false positives.
    #[cold]
    pub fn note_false_positives(&self, count: usize) {
        if let Some(filter) = &*self.filter.load() {
            (0..count).for_each(|_| filter.note_false_positive());
        }
    }

    /// Inserts a written key. REQUIRES: the commit lock; the write is in the memtable and not
    /// published.
    #[inline(never)]
    pub fn note_write(&self, kind: ValueKind, hash: u64) {
        // A key that was only ever deleted counts as never put.
        if kind != ValueKind::Delete
            && let Some(filter) = &*self.filter.load()
        {
            filter.insert(hash);
        }
    }

    /// Inserts a key replayed from the WAL, unless the filter covers it. REQUIRES: as
    /// [`KeyspaceExistence::note_write`], and no flush since the filter was opened.
    pub fn note_replayed(&self, sequence: SequenceNumber, kind: ValueKind, hash: u64) {
        fail_point!("existence-forget-replayed-keys", |_| ());
        let covered = self.filter.load().as_ref().map_or(u64::MAX, |filter| filter.covered());
        if sequence > covered {
            self.note_write(kind, hash);
        }
    }

    /// Statistics of the filter, or of its files; `None` without a filter.
    pub fn stats(&self) -> Option<ExistenceStats> {
        let of_filter = self.filter().map(|filter| filter.stats());
        of_filter.or_else(|| self.stats_on_disk.get().map(|stats| (**stats).clone()))
    }

    /// Stores the statistics of the files, or the error of reading them.
    pub fn set_stats_on_disk(&self, described: Result<ExistenceStats>) {
        match described {
            Ok(stats) => drop(self.stats_on_disk.set(Box::new(stats))),
            Err(error) => self.note_problem(Some(error)),
        }
    }

    /// Reason of the last failed upkeep, until an upkeep succeeds.
    pub fn problem(&self) -> Option<String> {
        let problem = self.problem.lock().ignore_poison();
        problem.as_ref().map(Error::message_without_advice)
    }

    /// Records the failure of its upkeep, or its success.
    pub fn note_problem(&self, problem: Option<Error>) {
        *self.problem.lock().ignore_poison() = problem;
    }

    /// Bytes of memory of the filter.
    pub fn memory_bytes(&self) -> u64 {
        if !self.is_on() {
            return 0;
        }
        self.filter.load().as_ref().map_or(0, |filter| filter.memory_bytes())
    }
}
