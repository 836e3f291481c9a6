//! [`ExistenceFilter`]: the public face.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Cache};
use umbel_base::{Error, Result};
use umbel_env::{Env, ProcessMark, check_path};

use crate::background::{Background, Work};
use crate::counters::{Counters, OwnCounters};
use crate::covered::Covered;
use crate::folder::Folder;
use crate::lines::Lines;
use crate::memory::{Memory, View};
use crate::options::ExistenceOptions;
use crate::recover::{Recovered, covered, describe, recover};
use crate::source::{Progress, Source};
use crate::stats::ExistenceStats;
use crate::tally::Tally;
use crate::writer::Writer;
use crate::{checkpoint, journal, page};

/// Bytes that each damaged line takes besides, in two trees: its number, and its bits as they are
/// remade.
const HEALING_BYTES: u64 = 128;

/// Answers "was this 64-bit hash ever inserted?" with "no" or "maybe".
///
/// Share it behind an [`Arc`]. Readers take no lock; threads insert beside each other; flushing and
/// [`step`](ExistenceFilter::step) go on beside both.
///
/// In a forked child the copy of a filter is the parent's: what would write is refused with
/// [`Error::Forked`], and an [`insert`](ExistenceFilter::insert) has it say "maybe" to everything.
#[derive(Debug)]
pub struct ExistenceFilter {
    /// `None` with `Size::Off`.
    inner: Option<Arc<Inner>>,
}

/// Locks are taken in this order: `background`, `writer`, the shards of `memory`.
#[derive(Debug)]
struct Inner {
    /// The process that opened it. A forked child may find any lock here held for ever.
    process: ProcessMark,
    folder: PathBuf,
    memory: Memory,
    writer: Mutex<Writer>,
    background: Mutex<Background>,
    counters: Counters,
    tally: Arc<Tally>,
    rebuild_wanted: AtomicBool,
    step_wanted: AtomicBool,
    lost: Option<String>,
}

impl ExistenceFilter {
    /// Opens the filter in a folder of its own, which is created where it is missing.
    ///
    /// Only `CHECKPOINT` and the journals are read; pages of the filter are read when they are
    /// first asked for, and by [`step`](ExistenceFilter::step). Whatever is missing or damaged is
    /// no error: the filter says "maybe" more often until it was made anew from the source.
    ///
    /// REQUIRES: nobody else has the folder open. Before the filter is believed, everything in the
    /// user's log behind [`covered`](ExistenceFilter::covered) is inserted; and
    /// [`truncate`](ExistenceFilter::truncate) is called if the log ends before that.
    ///
    /// # Errors
    /// [`Error::Invalid`](umbel_base::Error::Invalid) for an empty path or an option out of range,
    /// or where a newer version wrote the files; what the file system says where the folder cannot
    /// be created or listed, or no more files can be opened.
    pub fn open(env: &Env, folder: &Path, options: ExistenceOptions) -> Result<ExistenceFilter> {
        ExistenceFilter::open_checked(env, folder, options, &|_| true)
    }

    /// As [`open`](ExistenceFilter::open), where `is_ours` says whether the user's log has the
    /// history that the filter was flushed with. One that it has not is of another log, such as
    /// that of a copy of the store which went on by itself: it is made anew.
    ///
    /// # Errors
    /// As those of [`open`](ExistenceFilter::open).
    pub fn open_checked(
        env: &Env,
        folder: &Path,
        options: ExistenceOptions,
        is_ours: &dyn Fn(Covered) -> bool,
    ) -> Result<ExistenceFilter> {
        check_path("the existence filter", folder)?;
        options.check()?;
        let Some(shape) = options.shape() else {
            remove_files(env, folder)?;
            return Ok(ExistenceFilter { inner: None });
        };
        let (env, path) = (&env.of_this_process(), folder);
        let Recovered { folder, memory, found, lost } =
            recover(env, folder, &options, shape, is_ours)?;
        let tally = Arc::new(Tally::default());
        tally.rebuilds.add(u64::from(lost.is_some()));
        let writer = Writer::new(folder, options, Arc::clone(&tally), found);
        let background = Background::new(options, Arc::clone(&tally), lost.is_some());
        let inner = Inner {
            process: ProcessMark::current(),
            folder: path.to_path_buf(),
            memory,
            writer: Mutex::new(writer),
            background: Mutex::new(background),
            counters: Counters::new(),
            tally,
            rebuild_wanted: AtomicBool::new(false),
            step_wanted: AtomicBool::new(false),
            lost,
        };
        Ok(ExistenceFilter { inner: Some(Arc::new(inner)) })
    }

    /// What there is of it for this process: nothing in a forked child.
    fn own(&self) -> Option<&Inner> {
        self.inner.as_deref().filter(|inner| inner.process.is_current())
    }

    /// As [`ExistenceFilter::own`], for a call that changes it: refused in a forked child.
    fn to_change(&self) -> Result<Option<&Inner>> {
        match self.inner.as_deref() {
            Some(inner) if !inner.process.is_current() => Err(Error::Forked(inner.folder.clone())),
            inner => Ok(inner),
        }
    }

    /// No filter: every answer is "maybe", and no file is looked at.
    pub fn none() -> ExistenceFilter {
        ExistenceFilter { inner: None }
    }

    /// What the files in a folder say of their filter, without changing any: how large it is and
    /// how full, up to where it covers the user's log, and `lost` where an open with these options
    /// would make it anew. Hashes in journals count each time they stand there. Nobody asked it, so
    /// the counts are 0.
    ///
    /// # Errors
    /// As those of [`open`](ExistenceFilter::open).
    pub fn describe(
        env: &Env,
        folder: &Path,
        options: &ExistenceOptions,
        is_ours: &dyn Fn(Covered) -> bool,
    ) -> Result<ExistenceStats> {
        options.check()?;
        match options.shape() {
            Some(_) => describe(env, folder, options, is_ours),
            None => Ok(ExistenceStats::default()),
        }
    }

    /// Up to where the log was durable when the filter in a folder was last flushed, as its files
    /// tell; `None` where they tell none, or where it is not of this store and hash,
    /// unless nobody says which. For who lost the end of his log and wants to know of it. Changes
    /// nothing.
    ///
    /// # Errors
    /// As those of [`open`](ExistenceFilter::open).
    pub fn covered_on_disk(
        env: &Env,
        folder: &Path,
        whose: Option<(u64, u64)>,
    ) -> Result<Option<Covered>> {
        covered(env, folder, whose)
    }

    /// The position in the user's log up to which nothing is to be inserted again: what came later
    /// is not, or not surely, in the filter. 0: nothing is. `u64::MAX` without a filter.
    ///
    /// While the filter is made from nothing (see [`ExistenceStats::lost`]) this is 0 at first; it
    /// is enough then to insert what the source will not hand out.
    pub fn covered(&self) -> u64 {
        self.inner.as_ref().map_or(u64::MAX, |inner| inner.tally.covered.get())
    }

    /// Whether there is one: `false` with [`Size::Off`](crate::Size::Off).
    #[inline]
    pub fn is_on(&self) -> bool {
        self.inner.is_some()
    }

    /// Has the line of a hash fetched from memory. For who knows the hash some tenths of a
    /// microsecond before he asks, or inserts, and has other things to do meanwhile.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(inner) = &self.inner {
            inner.memory.prefetch(hash);
        }
    }

    /// Whether a hash may have been inserted: never `false` for one that was, to whoever learned of
    /// it after [`insert`](ExistenceFilter::insert) had returned.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let Some(inner) = &self.inner else { return true };
        let may_contain = inner.memory.may_contain(hash);
        inner.counters.note(may_contain);
        may_contain
    }

    /// Somebody who asks again and again, one at a time: he asks in less time.
    pub fn reader(&self) -> ExistenceReader {
        let watched = self.own().map(|inner| Watched {
            view: inner.memory.watched_view(),
            counters: inner.counters.own_counters(),
        });
        ExistenceReader { watched }
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
        inner.memory.may_contain_batch(hashes, answers);
        inner.counters.note_all(answers);
    }

    /// Reports that a "maybe" was in vain, so that [`ExistenceStats::measured_rate`] is known.
    #[inline]
    pub fn note_in_vain(&self) {
        if let Some(inner) = &self.inner {
            inner.counters.note_in_vain();
        }
    }

    /// Hashes that were inserted since the last flush: eight bytes of memory each.
    pub fn lag_items(&self) -> u64 {
        self.own().map_or(0, |inner| inner.memory.pending() + inner.tally.unwritten.get())
    }

    /// Bytes of memory of its lines, of what is needed to heal some of them, and of the hashes that
    /// no file has yet.
    pub fn memory_bytes(&self) -> u64 {
        let Some(inner) = self.own() else { return 0 };
        let view = inner.memory.view();
        let of = |lines: &Arc<Lines>| lines.shape().bytes() + HEALING_BYTES * lines.damaged_count();
        let lines: u64 = view.first.iter().chain(&view.second).map(of).sum();
        lines + 8 * (inner.memory.held() + inner.tally.unwritten.get())
    }

    /// How many different hashes are in it, and for how many it was made. `None` where there is no
    /// filter, or one is being filled.
    pub fn load(&self) -> Option<(u64, u64)> {
        let view = self.own()?.memory.view();
        let asked = view.first.as_ref().filter(|_| view.second.is_none())?;
        Some((asked.items(), asked.shape().keys))
    }

    /// Adds a hash.
    ///
    /// REQUIRES: the [`Source`] finds its key already.
    pub fn insert(&self, hash: u64) {
        let Some(inner) = &self.inner else { return };
        if !inner.process.is_current() {
            inner.memory.forget_all();
        } else if inner.memory.insert(hash) {
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
            inner.memory.forget_all();
        } else if inner.memory.insert_batch(hashes) {
            inner.step_wanted.store(true, Ordering::Release);
        }
    }

    /// Whether a [`step`](ExistenceFilter::step) should come soon because of what was inserted
    /// since this was asked last: as much as the filter was made for, with which one that grows
    /// begins to, or, while it does, as much as it has to keep pace with.
    #[inline]
    pub fn wants_step(&self) -> bool {
        let Some(inner) = &self.inner else { return false };
        inner.step_wanted.load(Ordering::Relaxed) && inner.step_wanted.swap(false, Ordering::AcqRel)
    }

    /// Makes everything inserted so far durable, and that it covers the log up to there. Blocks
    /// neither readers nor inserters. A position before the last one counts as the last one.
    ///
    /// REQUIRES: what the user's own log holds up to there is durable, and every key of it was
    /// inserted before this is called.
    ///
    /// # Errors
    /// What the disk says. Nothing is lost in memory then, nothing more is promised than before,
    /// and a later flush makes up for it; after a failed sync it writes the whole filter anew.
    pub fn flush(&self, covered: impl Into<Covered>) -> Result<()> {
        let Some(inner) = self.to_change()? else { return Ok(()) };
        inner.writer().flush(&inner.memory, covered.into())
    }

    /// As [`flush`](ExistenceFilter::flush) where that has only to write what was inserted since
    /// the last one. Where the whole filter would have to be written first this does nothing and
    /// answers `false`: steps write it, a bounded part at a time, and after them this writes.
    ///
    /// # Errors
    /// As those of a flush.
    pub fn flush_briefly(&self, covered: impl Into<Covered>) -> Result<bool> {
        let Some(inner) = self.to_change()? else { return Ok(true) };
        inner.writer().flush_briefly(&inner.memory, covered.into())
    }

    /// As [`flush`](ExistenceFilter::flush), but writes the whole filter anew, so that the next
    /// open has no journal to read: before a close, say. REQUIRES and errors are those of a flush.
    pub fn checkpoint(&self, covered: impl Into<Covered>) -> Result<()> {
        let Some(inner) = self.to_change()? else { return Ok(()) };
        inner.writer().write_now(&inner.memory, covered.into())
    }

    /// Takes back, durably, that more than this is covered. For a log that lost its end:
    /// new keys will stand at positions that were promised to be covered.
    ///
    /// REQUIRES: it is called before keys at such positions are inserted.
    ///
    /// # Errors
    /// What the disk says; such keys must not be written to the log then.
    pub fn truncate(&self, covered: impl Into<Covered>) -> Result<()> {
        let Some(inner) = self.to_change()? else { return Ok(()) };
        inner.writer().truncate(&inner.memory, covered.into())
    }

    /// One bounded step of what is to be done in the background: reads and verifies what was not
    /// yet read, writes a new generation of the files, grows, heals, rebuilds. `source` must not
    /// call this itself.
    ///
    /// # Errors
    /// What the disk or the source says. The filter answers as before, and the step is made again
    /// by the next call.
    pub fn step(&self, source: &dyn Source) -> Result<Progress> {
        let Some(inner) = self.to_change()? else { return Ok(Progress::Idle) };
        let mut background = inner.background.lock().unwrap_or_else(PoisonError::into_inner);
        background.step(&Work {
            memory: &inner.memory,
            writer: &inner.writer,
            source,
            rebuild_wanted: &inner.rebuild_wanted,
        })
    }

    /// Asks that the filter be made anew from the source by the next steps, so that keys which are
    /// gone leave it.
    pub fn rebuild(&self) {
        if let Some(inner) = &self.inner {
            inner.rebuild_wanted.store(true, Ordering::Release);
        }
    }

    /// What the filter says about itself. Takes up to some milliseconds: it looks at 65,536 lines.
    pub fn stats(&self) -> ExistenceStats {
        let mut stats = ExistenceStats::default();
        let Some(inner) = self.own() else { return stats };
        let view = inner.memory.view();
        stats.describe(view.first.as_deref(), view.second.as_deref());
        let asked = inner.counters.asked();
        stats.count(asked.denied, asked.maybe, asked.in_vain);
        let tally = &inner.tally;
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

/// Asks a filter again and again. It keeps hold of the filter as it last saw it, so that one which
/// grew meanwhile takes its old memory along until it asks again.
///
/// [`ExistenceFilter::may_contain`] has to say that it is looking, with locked instructions, which
/// keep the processor from fetching the lines of several questions at the same time. This only
/// looks whether something changed.
pub struct ExistenceReader {
    /// `None` with `Size::Off`.
    watched: Option<Watched>,
}

struct Watched {
    counters: OwnCounters,
    view: Cache<Arc<ArcSwap<View>>, Arc<View>>,
}

impl ExistenceReader {
    /// As [`ExistenceFilter::may_contain`].
    #[inline]
    pub fn may_contain(&mut self, hash: u64) -> bool {
        let Some(watched) = &mut self.watched else { return true };
        let may_contain = watched.view.load().may_contain(hash);
        watched.counters.note(may_contain);
        may_contain
    }
}

impl std::fmt::Debug for ExistenceReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ExistenceReader").finish_non_exhaustive()
    }
}

impl Inner {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what an earlier filter left, if there is anything, and nothing that is not a filter's.
fn remove_files(env: &Env, path: &Path) -> Result<()> {
    if !env.files.exists(path)? {
        return Ok(());
    }
    let is_ours = |magic: &[u8; 8]| {
        checkpoint::has_magic(magic) || journal::has_magic(magic) || page::has_magic(magic)
    };
    Folder::listed(env, path)?.remove_all(is_ours)
}
