//! [`ExistenceFilter`]: the public interface of the crate.

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

/// Additional bytes of memory for each damaged line, whose number and rebuilt bits are in two
/// trees.
const REPAIR_BYTES_PER_LINE: u64 = 128;

/// Answers "was this 64-bit hash ever inserted?" with "no" or "maybe".
///
/// Callers share a filter behind an [`Arc`]. Readers take no lock. Threads can insert concurrently,
/// and flushes and [`step`](ExistenceFilter::step) can run at the same time as readers and
/// inserters.
///
/// In a forked child a filter's files belong to the parent. Calls that write fail with
/// [`Error::Forked`], and after an [`insert`](ExistenceFilter::insert) the child's copy answers
/// "maybe" to every hash.
#[derive(Debug)]
pub struct ExistenceFilter {
    /// `None` with `ExistenceSize::Off`.
    inner: Option<Arc<Inner>>,
}

/// Locks are taken in this order: `background`, `writer`, the shards of `memory`.
#[derive(Debug)]
struct Inner {
    /// The process that opened the filter. In a forked child any of these locks can be locked
    /// forever.
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
    /// Opens the filter in a folder of its own, and creates the folder if it is missing.
    ///
    /// An open reads only `CHECKPOINT` and the journals. Pages of the filter are read at their
    /// first probe, and by [`step`](ExistenceFilter::step). Missing or damaged files are no error:
    /// the filter answers "maybe" more often until it was rebuilt from the source.
    ///
    /// REQUIRES: no other filter is open in the folder. Before the first probe, the caller inserts
    /// every key of its log after [`covered`](ExistenceFilter::covered). If the log ends before
    /// that position, the caller first calls [`truncate`](ExistenceFilter::truncate).
    ///
    /// # Errors
    /// [`Error::Invalid`](umbel_base::Error::Invalid) for an empty path, for an option out of
    /// range, or if a newer version wrote the files. The file system's error if the folder cannot
    /// be created or listed, or if the process has no free file descriptor.
    pub fn open(env: &Env, folder: &Path, options: ExistenceOptions) -> Result<ExistenceFilter> {
        ExistenceFilter::open_checked(env, folder, options, &|_| true)
    }

    /// Opens as [`open`](ExistenceFilter::open) does. `is_ours` returns whether the user's log has
    /// the history of the filter's last flush. If not, the filter belongs to another log, such as
    /// that of a diverged copy of the store, and is rebuilt.
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
        let background = BackgroundRebuild::new(options, Arc::clone(&tally), lost.as_ref());
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
            lost: lost.map(|reason| reason.text),
        };
        Ok(ExistenceFilter { inner: Some(Arc::new(inner)) })
    }

    /// The filter's state, or `None` in a forked child.
    fn inner_of_process(&self) -> Option<&Inner> {
        self.inner.as_deref().filter(|inner| inner.process.is_current())
    }

    /// The filter's state for a call that changes it; fails in a forked child.
    fn inner_for_change(&self) -> Result<Option<&Inner>> {
        match self.inner.as_deref() {
            Some(inner) if !inner.process.is_current() => {
                Err(Error::Forked(inner.directory.clone()))
            }
            inner => Ok(inner),
        }
    }

    /// Creates a filter that is off: it answers every probe with "maybe", and reads no file.
    pub fn disabled() -> ExistenceFilter {
        ExistenceFilter { inner: None }
    }

    /// Describes the filter in a folder by its files, without changes: its size and load, its
    /// coverage of the user's log, and `lost` if an open with these options would rebuild it.
    /// Hashes in journals count each time they occur. Counts of probes are 0.
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

    /// Position of the user's log that the last flush of the filter in a folder covered. `None` if
    /// the filter's files name no position, or if the filter belongs to another store or hash than
    /// the caller names. By it a caller can detect that the end of its log is lost. Changes no
    /// file.
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

    /// Position in the user's log up to which the filter has every key, so that the caller need not
    /// insert these keys again. 0 if no key is covered; `u64::MAX` if the filter is off.
    ///
    /// This position is 0 at the start of a build from nothing (see [`ExistenceStats::lost`]). The
    /// caller then needs to insert only keys that the source does not return.
    pub fn covered(&self) -> u64 {
        self.inner.as_ref().map_or(u64::MAX, |inner| inner.gauges.covered.get())
    }

    /// Whether there is a filter: `false` with [`ExistenceSize::Off`](crate::ExistenceSize::Off).
    #[inline]
    pub fn is_on(&self) -> bool {
        self.inner.is_some()
    }

    /// Prefetches the line of a hash from memory. Useful for a caller that knows the hash some
    /// tenths of a microsecond before it probes or inserts, with other work in between.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(inner) = &self.inner {
            inner.filters.prefetch(hash);
        }
    }

    /// Whether a hash may have been inserted. Never `false` for a hash whose
    /// [`insert`](ExistenceFilter::insert) returned before this call.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let Some(inner) = &self.inner else { return true };
        let may_contain = inner.filters.may_contain(hash);
        inner.counters.note(may_contain);
        may_contain
    }

    /// Creates a handle of one thread, which makes repeated single probes faster.
    pub fn reader(&self) -> ExistenceReader {
        let watched = self.inner_of_process();
        ExistenceReader::new(watched.map(|inner| (&inner.filters, &inner.counters)))
    }

    /// Calls [`may_contain`](ExistenceFilter::may_contain) for each hash; the lines of all hashes
    /// are fetched together.
    ///
    /// # Panics
    /// If `answers` and `hashes` have different lengths.
    pub fn may_contain_batch(&self, hashes: &[u64], answers: &mut [bool]) {
        assert_eq!(hashes.len(), answers.len(), "one answer for each hash");
        let Some(inner) = &self.inner else {
            answers.fill(true);
            return;
        };
        inner.filters.may_contain_batch(hashes, answers);
        inner.counters.note_all(answers);
    }

    /// Reports that a "maybe" was a false positive, for [`ExistenceStats::measured_rate`].
    #[inline]
    pub fn note_false_positive(&self) {
        if let Some(inner) = &self.inner {
            inner.counters.note_false_positive();
        }
    }

    /// Number of hashes inserted since the last flush; each takes eight bytes of memory.
    pub fn lag_items(&self) -> u64 {
        self.inner_of_process()
            .map_or(0, |inner| inner.filters.pending() + inner.gauges.unwritten.get())
    }

    /// Number of damaged lines that were rebuilt since the open, by a repair or a new filter. Takes
    /// no lock.
    pub fn rebuilt_lines(&self) -> u64 {
        self.inner_of_process().map_or(0, |inner| inner.gauges.healed_lines.get())
    }

    /// Number of journals that the open found damaged or missing. Takes no lock.
    pub fn damaged_journals(&self) -> u64 {
        self.inner_of_process().map_or(0, |inner| inner.gauges.damaged_journals.get())
    }

    /// Bytes of memory of the filter's lines, of the repair of damaged lines, of hashes that are in
    /// no file yet, and of hashes that wait to be counted.
    pub fn memory_bytes(&self) -> u64 {
        let Some(inner) = self.inner_of_process() else { return 0 };
        let view = inner.filters.view();
        let of = |lines: &Arc<BlockedFilter>| {
            lines.shape().bytes()
                + REPAIR_BYTES_PER_LINE * lines.damaged_count()
                + lines.uncounted_bytes()
        };
        let lines: u64 = view.first.iter().chain(&view.second).map(of).sum();
        lines + 8 * (inner.filters.buffered() + inner.gauges.unwritten.get())
    }

    /// Number of distinct hashes, and the number for which the filter was sized. `None` if the
    /// filter is off, or while a second filter is being filled.
    pub fn load(&self) -> Option<(u64, u64)> {
        let view = self.inner_of_process()?.filters.view();
        let filter = view.first.as_ref().filter(|_| view.second.is_none())?;
        Some((filter.items(), filter.shape().keys))
    }

    /// Adds a hash.
    ///
    /// REQUIRES: a walk of the [`HashSource`] that begins now returns the hash.
    pub fn insert(&self, hash: u64) {
        let Some(inner) = &self.inner else { return };
        if !inner.process.is_current() {
            inner.filters.answer_maybe();
        } else if inner.filters.insert(hash) {
            inner.step_wanted.store(true, Ordering::Release);
        }
    }

    /// Adds many hashes; their lines are fetched together.
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

    /// Makes all hashes inserted so far durable, with the position up to which they cover the
    /// user's log. Blocks neither readers nor inserters. A position before that of the last flush
    /// counts as that of the last flush.
    ///
    /// REQUIRES: the user's own log is durable up to the position, and every key up to the position
    /// was inserted before the call.
    ///
    /// # Errors
    /// The error of the disk. The hashes then stay in memory, the coverage does not change, and a
    /// later flush writes them. After a failed sync that later flush writes the whole filter.
    pub fn flush(&self, covered: impl Into<Coverage>) -> Result<()> {
        let Some(inner) = self.inner_for_change()? else { return Ok(()) };
        inner.writer().flush(&inner.filters, covered.into())
    }

    /// Flushes as [`flush`](ExistenceFilter::flush) does if only the inserts since the last flush
    /// must be written. If the whole filter must be written first, this call writes nothing and
    /// returns `false`. Then steps write the filter, a bounded part at a time, and a later call
    /// succeeds.
    ///
    /// # Errors
    /// As those of a flush.
    pub fn flush_journal_only(&self, covered: impl Into<Coverage>) -> Result<bool> {
        let Some(inner) = self.inner_for_change()? else { return Ok(true) };
        inner.writer().flush_journal_only(&inner.filters, covered.into())
    }

    /// Flushes as [`flush`](ExistenceFilter::flush) does, but writes the whole filter, so that the
    /// next open has no journal to read; useful before a close. Requirements and errors are those
    /// of [`flush`](ExistenceFilter::flush).
    pub fn checkpoint(&self, covered: impl Into<Coverage>) -> Result<()> {
        let Some(inner) = self.inner_for_change()? else { return Ok(()) };
        inner.writer().write_generation(&inner.filters, covered.into())
    }

    /// Durably lowers the covered position to `covered`. For a user whose log lost its end: its new
    /// keys will have positions that the filter covered before.
    ///
    /// REQUIRES: the caller inserts keys at such positions only after this call.
    ///
    /// # Errors
    /// The error of the disk. The caller then must not write such keys to its log.
    pub fn truncate(&self, covered: impl Into<Coverage>) -> Result<()> {
        let Some(inner) = self.inner_for_change()? else { return Ok(()) };
        inner.writer().truncate(&inner.filters, covered.into())
    }

    /// Does one bounded step of the background work: reads and verifies unread pages, writes a new
    /// generation of files, grows, repairs damaged lines, or rebuilds. `source` must not call
    /// `step` itself.
    ///
    /// # Errors
    /// The error of the disk or of the source. The filter still answers probes, and the next call
    /// repeats the step.
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

    /// Requests that the next steps rebuild the filter from the source, without deleted keys.
    pub fn rebuild(&self) {
        if let Some(inner) = &self.inner {
            inner.rebuild_wanted.store(true, Ordering::Release);
        }
    }

    /// Statistics of the filter. The call reads 65,536 lines, which takes up to some milliseconds.
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
            damaged_journals: tally.damaged_journals.get(),
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
