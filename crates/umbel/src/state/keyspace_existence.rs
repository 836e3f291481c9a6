//! [`KeyspaceExistence`]: the existence filter of a keyspace, if it has one, as gets and puts use
//! it. `existence_maintenance` opens, flushes and removes the filter.
//!
//! INVARIANT: the filter rejects no key that a reader can see:
//! 1. Under the commit lock a put goes into the memtable first, then into the filter, and then it
//!    is published. A reader knows of a put only by the published sequence number or after the put
//!    returned, so its probe finds the filter bits set.
//! 2. The filter is installed and removed under the commit lock. Puts before the installation are
//!    in the super version, where the scan that fills the filter finds them; until the scan ends
//!    the filter rejects nothing. Puts after the removal are visible only to readers that find no
//!    filter.
//! 3. A reader of several keys probes the filter after it read its sequence number, when all keys
//!    visible to it were inserted. A reader of one key can probe before it reads its sequence
//!    number: a rejection is then right for the moment of the probe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use arc_swap::ArcSwapOption;
use umbel_base::{Error, Result, SequenceNumber, ValueKind};
use umbel_existence::{ExistenceFilter, ExistenceStats};

use crate::options::ExistenceSize;

/// State of the existence filter's files. A thread that reads or writes the files holds the lock of
/// this state, so that no two filters use one directory.
#[derive(Debug)]
pub struct ExistenceFiles {
    /// The size with which the filter was opened.
    pub size: ExistenceSize,
    /// All writes up to this sequence number are in tables and no longer in the WAL. The next open
    /// does not trust a filter that covers a lower sequence number.
    pub floor: SequenceNumber,
}

/// The existence filter of a keyspace, or none.
#[derive(Debug)]
pub struct KeyspaceExistence {
    /// Whether the keyspace has a filter. The field is separate, so that keyspaces without a filter
    /// pay only for one branch.
    is_on: AtomicBool,
    filter: ArcSwapOption<ExistenceFilter>,
    files: Mutex<ExistenceFiles>,
    problem: Mutex<Option<Error>>,
    /// Statistics from the filter's files, if the store is open read-only and so loads no filter.
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
    /// Whether the keyspace has a filter to probe.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the filter; `None` without one.
    pub fn filter(&self) -> Option<Arc<ExistenceFilter>> {
        self.filter.load_full()
    }

    /// Locks the state of the filter's files.
    pub fn files(&self) -> MutexGuard<'_, ExistenceFiles> {
        self.files.lock().ignore_poison()
    }

    /// Installs or removes the filter. REQUIRES: the caller holds the commit lock, or no other
    /// thread has the keyspace yet.
    pub fn set_filter(&self, filter: Option<ExistenceFilter>) {
        let is_on = filter.is_some();
        self.filter.store(filter.map(Arc::new));
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether the filter proves that no key with this hash was ever put.
    #[inline]
    pub fn denies(&self, hash: u64) -> bool {
        self.filter.load().as_ref().is_some_and(|filter| !filter.may_contain(hash))
    }

    /// Fills `answers` with whether the key of each hash was possibly put; all `true` without a
    /// filter.
    pub fn may_contain_batch(&self, hashes: &[u64], answers: &mut [bool]) {
        match &*self.filter.load() {
            Some(filter) => filter.may_contain_batch(hashes, answers),
            None => answers.fill(true),
        }
    }

    /// Adds `count` false positives to the filter's statistics.
    #[cold]
    pub fn note_false_positives(&self, count: usize) {
        if let Some(filter) = &*self.filter.load() {
            (0..count).for_each(|_| filter.note_false_positive());
        }
    }

    /// Inserts a written key into the filter. REQUIRES: the caller holds the commit lock, and the
    /// write is in the memtable and not published.
    #[inline(never)]
    pub fn note_write(&self, kind: ValueKind, hash: u64) {
        // A key that was only ever deleted counts as never put.
        if kind != ValueKind::Delete
            && let Some(filter) = &*self.filter.load()
        {
            filter.insert(hash);
        }
    }

    /// Inserts a key replayed from the WAL, unless the filter covers its sequence number. REQUIRES:
    /// what [`KeyspaceExistence::note_write`] requires, and no flush since the filter was opened.
    pub fn note_replayed(&self, sequence: SequenceNumber, kind: ValueKind, hash: u64) {
        fail_point!("existence-forget-replayed-keys", |_| ());
        let covered = self.filter.load().as_ref().map_or(u64::MAX, |filter| filter.covered());
        if sequence > covered {
            self.note_write(kind, hash);
        }
    }

    /// Returns statistics of the filter, or of its files if the store is open read-only; `None`
    /// without a filter.
    pub fn stats(&self) -> Option<ExistenceStats> {
        let of_filter = self.filter().map(|filter| filter.stats());
        of_filter.or_else(|| self.stats_on_disk.get().map(|stats| (**stats).clone()))
    }

    /// Stores the statistics of the filter's files, or the error of reading the files.
    pub fn set_stats_on_disk(&self, described: Result<ExistenceStats>) {
        match described {
            Ok(stats) => drop(self.stats_on_disk.set(Box::new(stats))),
            Err(error) => self.note_problem(Some(error)),
        }
    }

    /// Error of the last maintenance of the filter; `None` after a success.
    pub fn problem(&self) -> Option<String> {
        let problem = self.problem.lock().ignore_poison();
        problem.as_ref().map(Error::message_without_advice)
    }

    /// Records the error of the filter's maintenance, or its success.
    pub fn note_problem(&self, problem: Option<Error>) {
        *self.problem.lock().ignore_poison() = problem;
    }

    /// Bytes of memory that the filter takes.
    pub fn memory_bytes(&self) -> u64 {
        if !self.is_on() {
            return 0;
        }
        self.filter.load().as_ref().map_or(0, |filter| filter.memory_bytes())
    }
}
