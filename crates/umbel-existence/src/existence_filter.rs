//! [`ExistenceFilter`]: the public face.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::{Env, ProcessMark, check_path};

use crate::background_rebuild::{BackgroundRebuild, StepContext};
use crate::existence_reader::ExistenceReader;
use crate::layout::filter_page;
use crate::log_coverage::Coverage;
use crate::maintenance_counters::MaintenanceCounters;
use crate::memory::active_filters::ActiveFilters;
use crate::memory::blocked_filter::BlockedFilter;
use crate::options::ExistenceOptions;
use crate::persistence::directory::FilterDirectory;
use crate::persistence::filter_writer::FilterWriter;
use crate::persistence::recovery::{RecoveredFilter, covered, describe, recover};
use crate::persistence::{checkpoint, journal};
use crate::probe_counters::ProbeCounters;
use crate::rebuild_source::{HashSource, StepProgress};
use crate::stats::ExistenceStats;

/// Additional bytes of each damaged line, in two trees: its number, and its rebuilt
/// bits.
const REPAIR_BYTES_PER_LINE: u64 = 128;

/// Answers "was this 64-bit hash ever inserted?" with "no" or "maybe".
///
/// Share it behind an [`Arc`]. Readers take no lock. Threads insert concurrently, and flushes and
/// [`step`](ExistenceFilter::step) run at the same time as both.
///
/// In a forked child the copy of a filter belongs to the parent. Calls that write fail with
/// [`Error::Forked`], and an [`insert`](ExistenceFilter::insert) makes it answer "maybe" to
/// everything.
#[derive(Debug)]
pub struct ExistenceFilter {
    /// `None` with `ExistenceSize::Off`.
    inner: Option<Arc<Inner>>,
}

/// Locks are taken in this order: `background`, `writer`, the shards of `memory`.
#[derive(Debug)]
struct Inner {
    /// The process that opened it. A forked child may find any lock here held for ever.
    process: ProcessMark,
    directory: PathBuf,
    filters: ActiveFilters,
    writer: Mutex<FilterWriter>,
    maintenance: Mutex<BackgroundRebuild>,
    counters: ProbeCounters,
    gauges: Arc<MaintenanceCounters>,
    rebuild_wanted: AtomicBool,
    step_wanted: AtomicBool,
    lost: Option<String>,
}

impl ExistenceFilter {
    /// Opens the filter in a folder of its own, which is created where it is missing.
    ///
    /// Only `CHECKPOINT` and the journals are read; pages of the filter are read when they are
    /// first requested, and by [`step`](ExistenceFilter::step). Whatever is missing or damaged is
    /// no error: the filter says "maybe" more often until it was rebuilt from the source.
    ///
    /// REQUIRES: no other thread has the folder open. Before the first probe, the caller inserts
    /// every key of its log after [`covered`](ExistenceFilter::covered), and calls
    /// [`truncate`](ExistenceFilter::truncate) if the log ends before that.
    ///
    /// # Errors
    /// [`Error::Invalid`](umbel_base::Error::Invalid) for an empty path or an option out of range,
    /// or where a newer version wrote the files. The file system's error where the folder cannot
    /// be created or listed, or no more files can be opened.
    pub fn open(env: &Env, folder: &Path, options: ExistenceOptions) -> Result<ExistenceFilter> {
        ExistenceFilter::open_checked(env, folder, options, &|_| true)
    }

    /// As [`open`](ExistenceFilter::open), where `is_ours` says whether the user's log has the
    /// history of the last flush. Otherwise the filter belongs to another log, such as
    /// that of a diverged copy of the store: it is rebuilt.
    ///
    /// # Errors
    /// As those of [`open`](ExistenceFilter::open).
    pub fn open_checked(
        env: &Env,
        folder: &Path,
        options: ExistenceOptions,
        is_ours: &dyn Fn(Coverage) -> bool,
    ) -> Result<ExistenceFilter> {
        check_path("the existence filter", folder)?;
        options.check()?;
        let Some(shape) = options.dimensions() else {
            remove_files(env, folder)?;
            return Ok(ExistenceFilter { inner: None });
        };
        let (env, path) = (&env.fork_guarded(), folder);
        let RecoveredFilter { directory: folder, filters: memory, state: found, lost } =
            recover(env, folder, &options, shape, is_ours)?;
        let tally = Arc::new(MaintenanceCounters::default());
        tally.rebuilds.add(u64::from(lost.is_some()));
        let writer = FilterWriter::new(folder, options, Arc::clone(&tally), found);
        let background = BackgroundRebuild::new(options, Arc::clone(&tally), lost.is_some());
        let inner = Inner {
            process: ProcessMark::current(),
            directory: path.to_path_buf(),
            filters: memory,
            writer: Mutex::new(writer),
            maintenance: Mutex::new(background),
            counters: ProbeCounters::new(),
            gauges: tally,
            rebuild_wanted: AtomicBool::new(false),
            step_wanted: AtomicBool::new(false),
            lost,
        };
        Ok(ExistenceFilter { inner: Some(Arc::new(inner)) })
    }

    /// State for this process: `None` in a forked child.
    fn inner_of_process(&self) -> Option<&Inner> {
        self.inner.as_deref().filter(|inner| inner.process.is_current())
    }

    /// As [`ExistenceFilter::inner_of_process`], for a call that changes it: refused in a forked
    /// child.
    fn inner_for_change(&self) -> Result<Option<&Inner>> {
        match self.inner.as_deref() {
            Some(inner) if !inner.process.is_current() => {
                Err(Error::Forked(inner.directory.clone()))
            }
            inner => Ok(inner),
        }
    }

    /// No filter: every answer is "maybe", and no file is read.
    pub fn disabled() -> ExistenceFilter {
        ExistenceFilter { inner: None }
    }

    /// Describes the filter in a folder by its files, without changes: its size and load, its
    /// coverage of the user's log, and `lost` where an open with these options
    /// would rebuild it. Hashes in journals count each time they occur. No reader probed
    /// it, so the counts are 0.
    ///
    /// # Errors
    /// As those of [`open`](ExistenceFilter::open).
    pub fn describe(
        env: &Env,
        folder: &Path,
        options: &ExistenceOptions,
        is_ours: &dyn Fn(Coverage) -> bool,
    ) -> Result<ExistenceStats> {
        options.check()?;
        match options.dimensions() {
            Some(_) => describe(env, folder, options, is_ours),
            None => Ok(ExistenceStats::default()),
        }
    }

    /// Position up to which the log was durable at the last flush of the filter in a folder. `None`
    /// where its files name none, or where it does not belong to this store and hash,
    /// unless the caller names none. For callers that must detect a lost end of their log.
    /// Changes nothing.
    ///
    /// # Errors
    /// As those of [`open`](ExistenceFilter::open).
    pub fn covered_on_disk(
        env: &Env,
        folder: &Path,
        whose: Option<(u64, u64)>,
    ) -> Result<Option<Coverage>> {
        covered(env, folder, whose)
    }

    /// Position in the user's log up to which no key must be inserted again. Later keys
    /// may be missing in the filter. 0: no key is covered. `u64::MAX` without a filter.
    ///
    /// During a build from nothing (see [`ExistenceStats::lost`]) this is 0 at first. Then
    /// only keys that the source does not hand out must be inserted.
    pub fn covered(&self) -> u64 {
        self.inner.as_ref().map_or(u64::MAX, |inner| inner.gauges.covered.get())
    }

    /// Whether there is one: `false` with [`ExistenceSize::Off`](crate::ExistenceSize::Off).
    #[inline]
    pub fn is_on(&self) -> bool {
        self.inner.is_some()
    }

    /// Has the line of a hash fetched from memory. For callers that know the hash some tenths of a
    /// microsecond before they probe, or insert, and have other things to do meanwhile.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(inner) = &self.inner {
            inner.filters.prefetch(hash);
        }
    }

    /// Whether a hash may have been inserted: never `false` for one that was, to a reader that
    /// learned of it after [`insert`](ExistenceFilter::insert) had returned.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let Some(inner) = &self.inner else { return true };
        let may_contain = inner.filters.may_contain(hash);
        inner.counters.note(may_contain);
        may_contain
    }

    /// Probe handle for repeated single probes, which then take less time.
    pub fn reader(&self) -> ExistenceReader {
        let watched = self.inner_of_process();
        ExistenceReader::new(watched.map(|inner| (&inner.filters, &inner.counters)))
    }

    /// As [`may_contain`](ExistenceFilter::may_contain) for each hash; their lines are fetched
    /// together.
    ///
    /// # Panics
    /// Where there are not as many answers as hashes.
    pub fn may_contain_batch(&self, hashes: &[u64], answers: &mut [bool]) {
        assert_eq!(hashes.len(), answers.len(), "one answer for each hash");
        let Some(inner) = &self.inner else {
            answers.fill(true);
            return;
        };
        inner.filters.may_contain_batch(hashes, answers);
        inner.counters.note_all(answers);
    }

    /// Reports that a "maybe" was a false positive, so that [`ExistenceStats::measured_rate`] is
    /// known.
    #[inline]
    pub fn note_false_positive(&self) {
        if let Some(inner) = &self.inner {
            inner.counters.note_false_positive();
        }
    }

    /// Hashes that were inserted since the last flush: eight bytes of memory each.
    pub fn lag_items(&self) -> u64 {
        self.inner_of_process()
            .map_or(0, |inner| inner.filters.pending() + inner.gauges.unwritten.get())
    }

    /// Bytes of memory of its lines, of the repair of damaged lines, and of the hashes that
    /// no file has yet.
    pub fn memory_bytes(&self) -> u64 {
        let Some(inner) = self.inner_of_process() else { return 0 };
        let view = inner.filters.view();
        let of = |lines: &Arc<BlockedFilter>| {
            lines.shape().bytes() + REPAIR_BYTES_PER_LINE * lines.damaged_count()
        };
        let lines: u64 = view.first.iter().chain(&view.second).map(of).sum();
        lines + 8 * (inner.filters.buffered() + inner.gauges.unwritten.get())
    }

    /// Number of distinct hashes, and the number for which the filter was sized. `None` where there
    /// is no filter, or while one is being filled.
    pub fn load(&self) -> Option<(u64, u64)> {
        let view = self.inner_of_process()?.filters.view();
        let filter = view.first.as_ref().filter(|_| view.second.is_none())?;
        Some((filter.items(), filter.shape().keys))
    }

    /// Adds a hash.
    ///
    /// REQUIRES: the [`HashSource`] finds its key already.
    pub fn insert(&self, hash: u64) {
        let Some(inner) = &self.inner else { return };
        if !inner.process.is_current() {
            inner.filters.answer_maybe();
        } else if inner.filters.insert(hash) {
            inner.step_wanted.store(true, Ordering::Release);
        }
    }

    /// Adds many hashes, whose lines are fetched together.
    ///
    /// REQUIRES: as [`insert`](ExistenceFilter::insert).
    pub fn insert_batch(&self, hashes: &[u64]) {
        let Some(inner) = &self.inner else { return };
        if !inner.process.is_current() {
            // The locks may be held for ever; without them it can still be right.
            inner.filters.answer_maybe();
        } else if inner.filters.insert_batch(hashes) {
            inner.step_wanted.store(true, Ordering::Release);
        }
    }

    /// Whether a [`step`](ExistenceFilter::step) should come soon because of the inserts
    /// since the last call: a growing filter has reached its capacity, or its growth must keep pace
    /// with the inserts.
    #[inline]
    pub fn wants_step(&self) -> bool {
        let Some(inner) = &self.inner else { return false };
        inner.step_wanted.load(Ordering::Relaxed) && inner.step_wanted.swap(false, Ordering::AcqRel)
    }

    /// Makes everything inserted so far durable, and that it covers the log up to there. Blocks
    /// neither readers nor inserters. A position before the last one counts as the last one.
    ///
    /// REQUIRES: the user's own log is durable up to the position, and every key of it was
    /// inserted before the call.
    ///
    /// # Errors
    /// The error of the disk. Memory loses nothing then, the coverage stays the same,
    /// and a later flush catches up. After a failed sync it writes the whole filter
    /// again.
    pub fn flush(&self, covered: impl Into<Coverage>) -> Result<()> {
        let Some(inner) = self.inner_for_change()? else { return Ok(()) };
        inner.writer().flush(&inner.filters, covered.into())
    }

    /// As [`flush`](ExistenceFilter::flush) where only the inserts since the last one must be
    /// written. Where the whole filter must be written first, this does nothing and
    /// returns `false`: steps write it, a bounded part at a time, and a later call succeeds.
    ///
    /// # Errors
    /// As those of a flush.
    pub fn flush_journal_only(&self, covered: impl Into<Coverage>) -> Result<bool> {
        let Some(inner) = self.inner_for_change()? else { return Ok(true) };
        inner.writer().flush_journal_only(&inner.filters, covered.into())
    }

    /// As [`flush`](ExistenceFilter::flush), but writes the whole filter again, so that the next
    /// open has no journal to read: before a close, say. REQUIRES and errors are those of a flush.
    pub fn checkpoint(&self, covered: impl Into<Coverage>) -> Result<()> {
        let Some(inner) = self.inner_for_change()? else { return Ok(()) };
        inner.writer().write_generation(&inner.filters, covered.into())
    }

    /// Takes back, durably, that more than this is covered. For a log that lost its end:
    /// new keys will stand at positions that were promised to be covered.
    ///
    /// REQUIRES: it is called before keys at such positions are inserted.
    ///
    /// # Errors
    /// Error that the disk returns; such keys must not be written to the log then.
    pub fn truncate(&self, covered: impl Into<Coverage>) -> Result<()> {
        let Some(inner) = self.inner_for_change()? else { return Ok(()) };
        inner.writer().truncate(&inner.filters, covered.into())
    }

    /// One bounded step of the background work: reads and verifies unread pages,
    /// writes a new generation of the files, grows, heals, rebuilds. `source` must not
    /// call this itself.
    ///
    /// # Errors
    /// What the disk or the source says. The filter answers as before, and the step is made again
    /// by the next call.
    pub fn step(&self, source: &dyn HashSource) -> Result<StepProgress> {
        let Some(inner) = self.inner_for_change()? else { return Ok(StepProgress::Idle) };
        let mut background = inner.maintenance.lock().ignore_poison();
        background.step(&StepContext {
            memory: &inner.filters,
            writer: &inner.writer,
            source,
            rebuild_wanted: &inner.rebuild_wanted,
        })
    }

    /// Requests a rebuild from the source by the next steps, which drops deleted
    /// keys.
    pub fn rebuild(&self) {
        if let Some(inner) = &self.inner {
            inner.rebuild_wanted.store(true, Ordering::Release);
        }
    }

    /// Statistics of the filter. Takes up to some milliseconds: it reads 65,536 lines.
    pub fn stats(&self) -> ExistenceStats {
        let mut stats = ExistenceStats::default();
        let Some(inner) = self.inner_of_process() else { return stats };
        let view = inner.filters.view();
        stats.describe(view.first.as_deref(), view.second.as_deref());
        let totals = inner.counters.totals();
        stats.count(totals.denied, totals.maybe, totals.false_positives);
        let tally = &inner.gauges;
        ExistenceStats {
            lost: inner.lost.clone(),
            covered: tally.covered.get(),
            lag_items: self.lag_items(),
            flushes: tally.flushes.get(),
            generations: tally.generations.get(),
            bytes_written: tally.bytes_written.get(),
            healed_lines: tally.healed_lines.get(),
            growths: tally.growths.get(),
            rebuilds: tally.rebuilds.get(),
            ..stats
        }
    }
}

impl Inner {
    fn writer(&self) -> MutexGuard<'_, FilterWriter> {
        self.writer.lock().ignore_poison()
    }
}

/// Removes the files of an earlier filter, if any, and no others.
fn remove_files(env: &Env, path: &Path) -> Result<()> {
    if !env.files.exists(path)? {
        return Ok(());
    }
    let is_ours = |magic: &[u8; 8]| {
        checkpoint::has_magic(magic) || journal::has_magic(magic) || filter_page::has_magic(magic)
    };
    FilterDirectory::open_existing(env, path)?.remove_all(is_ours)
}
