//! Scavenge: frees the space of events that no reader of their streams can see, while appends and
//! reads continue.
//!
//! Chunks are processed in order. The scavenge judges the events of a chunk and writes the
//! remaining events to another file. The scavenge syncs the new file, which then replaces the
//! chunk's file in the manifest. The events on which the verdicts depend are synced before the
//! replacement. After the replacement, the index deletes the entries of removed events, and the old
//! file is removed.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_env::{Access, ProcessMark};

use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::ScavengedFile;
use crate::event_log::event_format::Frame;
use crate::event_log::scavenged_chunk::ScavengedChunkWriter;
use crate::limits::WINDOW_BYTES;
use crate::primitives::wakeup::Wakeup;
use crate::scavenge::redaction::redaction_verdict;
use crate::scavenge::retention_policy::{RetentionPolicy, Verdict, has_content};
use crate::scavenge::scavenge_rate_limit::{SLICE_BYTES, ScavengeThrottle};
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::NewEvent;

pub mod index_cleanup;
pub mod redaction;
pub mod removed_view_entries;
pub mod retention_policy;
pub mod scavenge_rate_limit;

/// Number of rewritten chunks whose old files are kept until one flush of the index covers all of
/// them.
const CHUNKS_PER_FLUSH: usize = 4;
/// Interval at which a pausing scavenge checks whether the store was closed.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Length of one of the waits for the end of a scavenge.
const WAIT_INTERVAL: Duration = Duration::from_hours(1);

/// Options of a scavenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScavengeOptions {
    /// Maximum bytes of the log, read and written together, per second; `None` if only
    /// `busy_percent` limits the scavenge.
    pub bytes_per_second: Option<u64>,
    /// Percentage of time in which the scavenge works, 1 to 100; the remaining time is left to
    /// other work.
    pub busy_percent: u64,
    /// Begins with the oldest chunk even if an earlier scavenge did not end.
    pub from_start: bool,
    /// Hidden events within this many newest bytes of the log leave a stub with their id, so that
    /// retries of their appends are recognized.
    pub retry_bytes: u64,
    /// Ends the newest chunk first and begins with the oldest, so that the data of no hidden event
    /// is left. Then reads the log once more, and counts hidden events that still have data.
    pub removes_all: bool,
    /// Least share of dead bytes in the file of a chunk at which the scavenge rewrites the chunk,
    /// in percent, 0 to 100. Dead bytes are those by which the rewrite shortens the file. At 0, and
    /// if the scavenge removes all, one removed event is enough.
    pub dead_percent_min: u64,
}

impl Default for ScavengeOptions {
    fn default() -> ScavengeOptions {
        let (bytes_per_second, from_start) = (None, false);
        let retry_bytes = WINDOW_BYTES;
        let (busy_percent, removes_all, dead_percent_min) = (25, false, 0);
        ScavengeOptions {
            bytes_per_second,
            busy_percent,
            from_start,
            retry_bytes,
            removes_all,
            dead_percent_min,
        }
    }
}

impl ScavengeOptions {
    fn check(&self) -> Result<()> {
        if !(1..=100).contains(&self.busy_percent) {
            let percent = self.busy_percent;
            return Err(Error::invalid(format!("busy_percent is {percent}, but must be 1 to 100")));
        }
        if self.dead_percent_min > 100 {
            let percent = self.dead_percent_min;
            let why = format!("dead_percent_min is {percent}, but must be 0 to 100");
            return Err(Error::invalid(why));
        }
        if self.bytes_per_second == Some(0) {
            return Err(Error::invalid(
                "bytes_per_second is 0, with which a scavenge never ends; choose at least 1",
            ));
        }
        Ok(())
    }
}

/// Progress or result of a scavenge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScavengeReport {
    /// Number of chunks to examine.
    pub chunks: u64,
    /// Number of examined chunks.
    pub chunks_examined: u64,
    /// Number of rewritten chunks.
    pub chunks_rewritten: u64,
    /// Number of chunks with dead bytes that stay, because their share of dead bytes is below the
    /// [threshold](ScavengeOptions::dead_percent_min).
    pub chunks_below_threshold: u64,
    /// Number of examined events.
    pub events: u64,
    /// Number of removed events.
    pub events_removed: u64,
    /// Number of events that lost their data and metadata, because only their ids and revisions are
    /// still needed.
    pub events_stubbed: u64,
    /// Bytes of the log that were freed.
    pub bytes_freed: u64,
    /// Chunk at which this scavenge resumed an earlier, unfinished scavenge.
    pub resumed_from: Option<u64>,
    /// Whether all chunks were examined; `false` if the scavenge was stopped.
    pub is_complete: bool,
    /// Number of hidden events that still have data, because they became hidden meanwhile; `None`
    /// unless the scavenge [removes all](ScavengeOptions::removes_all).
    pub hidden_events_left: Option<u64>,
    /// Replaced files that still exist, because a reader in another process uses them. The store
    /// removes them later, at the latest at its next open. A scavenge that
    /// [removes all](ScavengeOptions::removes_all) includes files of earlier scavenges.
    pub files_kept: Vec<PathBuf>,
    /// Replaced files that have another name, in a copy of the store that was made of hard links.
    /// The copy still has the data.
    pub files_with_other_names: Vec<PathBuf>,
}

/// Handle of a scavenge on the store's thread. Dropping the handle stops the scavenge.
#[derive(Debug)]
pub struct Scavenge {
    /// Process of the scavenge's thread. In a forked child the scavenge counts as ended.
    process: ProcessMark,
    folder: PathBuf,
    control: Arc<ScavengeControl>,
}

#[derive(Debug, Default)]
struct ScavengeControl {
    report: Mutex<ScavengeReport>,
    outcome: Mutex<Option<Result<ScavengeReport>>>,
    /// Woken when the scavenge must end.
    stopped: Wakeup,
    /// Woken when the scavenge has ended.
    ended: Wakeup,
}

impl ScavengeControl {
    fn report(&self) -> ScavengeReport {
        self.report.lock().ignore_poison().clone()
    }

    /// Waits until the scavenge has ended.
    fn wait(&self) {
        while !self.ended.wait(WAIT_INTERVAL) {}
    }
}

/// Signals the end of the scavenge, however it ends.
struct CompletionGuard(Arc<ScavengeControl>);

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        self.0.ended.wake();
    }
}

impl Scavenge {
    /// Returns the progress of the scavenge up to now.
    pub fn progress(&self) -> ScavengeReport {
        if !self.process.is_current() {
            return ScavengeReport::default();
        }
        self.control.report()
    }

    /// Whether the scavenge has ended. In a forked child, which lacks the thread, the scavenge
    /// counts as ended.
    pub fn is_done(&self) -> bool {
        !self.process.is_current() || self.control.ended.is_woken()
    }

    /// Waits until the scavenge has ended, at most for `timeout`. Returns whether the scavenge has
    /// ended.
    pub fn wait_for(&self, timeout: Duration) -> bool {
        !self.process.is_current() || self.control.ended.wait(timeout)
    }

    /// Requests an early end. The finished work stays, and another scavenge continues after it.
    pub fn stop(&self) {
        if self.process.is_current() {
            self.control.stopped.wake();
        }
    }

    /// Waits until the scavenge ends.
    ///
    /// # Errors
    /// The errors of [`Store::scavenge`](crate::Store::scavenge).
    pub fn wait(self) -> Result<ScavengeReport> {
        if !self.process.is_current() {
            return Err(umbel::Error::Forked(self.folder.clone()).into());
        }
        self.control.wait();
        let outcome = self.control.outcome.lock().ignore_poison().take();
        outcome.unwrap_or_else(|| Err(Error::invalid("internal: the scavenge ended in a panic")))
    }
}

impl Drop for Scavenge {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.stop();
            self.control.wait();
        }
    }
}

/// Reason why a scavenge ends before all chunks were examined.
enum ScavengeHalt {
    Stopped,
    Failed(Error),
}

impl ScavengeHalt {
    /// Whether the disk is full.
    fn is_full(&self) -> bool {
        matches!(self, ScavengeHalt::Failed(Error::Store(umbel::Error::DiskFull { .. })))
    }
}

impl<E: Into<Error>> From<E> for ScavengeHalt {
    fn from(error: E) -> ScavengeHalt {
        ScavengeHalt::Failed(error.into())
    }
}

/// Scavenges on the calling thread.
pub fn run(shared: &Arc<StoreInner>, options: &ScavengeOptions) -> Result<ScavengeReport> {
    let work = begin(shared, options)?;
    shared.damage.record(work.run())
}

/// Scavenges on the store's thread for scavenges.
pub fn start(shared: &Arc<StoreInner>, options: &ScavengeOptions) -> Result<Scavenge> {
    let work = begin(shared, options)?;
    let control = Arc::clone(&work.control);
    let ending = CompletionGuard(Arc::clone(&control));
    let damage = shared.damage.clone();
    let run = move || {
        let outcome = damage.record(work.run());
        *ending.0.outcome.lock().ignore_poison() = Some(outcome);
    };
    shared.scavenge_thread.run(&*shared.env.threads, Box::new(run))?;
    let (process, folder) = (shared.open_mark.process(), shared.folder.clone());
    Ok(Scavenge { process, folder, control })
}

fn begin(shared: &Arc<StoreInner>, options: &ScavengeOptions) -> Result<ScavengeJob> {
    options.check()?;
    shared.check_writable()?;
    shared.check_not_replicated("scavenges and redactions")?;
    if !shared.scavenge_task.try_begin() {
        return Err(Error::invalid(
            "a scavenge of the store is already running; wait until it has ended, or stop it",
        ));
    }
    let clock = Arc::clone(&shared.env.clock);
    let throttle = ScavengeThrottle::new(clock, options.bytes_per_second, options.busy_percent);
    Ok(ScavengeJob {
        shared: Arc::clone(shared),
        options: options.clone(),
        control: Arc::default(),
        redacted: HashSet::new(),
        swapped: Vec::new(),
        next: 0,
        throttle,
    })
}

/// Running scavenge. No other scavenge of the store can begin until this job is dropped.
struct ScavengeJob {
    shared: Arc<StoreInner>,
    options: ScavengeOptions,
    control: Arc<ScavengeControl>,
    /// Positions of the events to redact; empty for a scavenge.
    redacted: HashSet<u64>,
    /// Rewritten chunks whose old files still exist, each with its replacement.
    swapped: Vec<(Arc<Chunk>, Arc<Chunk>)>,
    /// Chunk at which another scavenge would resume.
    next: u64,
    throttle: ScavengeThrottle,
}

impl Drop for ScavengeJob {
    fn drop(&mut self) {
        self.shared.scavenge_task.end();
    }
}

impl ScavengeJob {
    fn run(mut self) -> Result<ScavengeReport> {
        let done = self.examine_all();
        if done.is_err() {
            // If it fails, the next scavenge or open does it.
            let settled = self.finish_swapped();
            if matches!(done, Err(ScavengeHalt::Stopped)) {
                settled?;
                self.shared.log.set_scavenge_from(self.next)?;
            }
        }
        match done {
            Ok(()) => self.update_report(|report| report.is_complete = true),
            Err(ScavengeHalt::Stopped) => {}
            Err(ScavengeHalt::Failed(error)) => return Err(error),
        }
        Ok(self.control.report())
    }

    fn update_report(&self, change: impl FnOnce(&mut ScavengeReport)) {
        change(&mut self.control.report.lock().ignore_poison());
    }

    fn examine_all(&mut self) -> core::result::Result<(), ScavengeHalt> {
        let shared = Arc::clone(&self.shared);
        match self.options.removes_all {
            true => shared.end_newest_chunk()?,
            false => shared.flush_index()?,
        }
        {
            let _flusher = shared.flush_lock.lock().ignore_poison();
            index_cleanup::finish_interrupted(&shared.components)?;
        }
        let through = shared.index.durable_through()?;
        let resumed = shared.log.scavenge_from();
        let is_from_start = self.options.from_start || self.options.removes_all;
        let from = if is_from_start { 0 } else { resumed };
        let chunks = shared.log.chunks.all();
        let is_due = |chunk: &Arc<Chunk>| {
            let last = chunk.last_event().map(|last| chunk.start + last);
            chunk.ended.get().is_some()
                && chunk.start >= from
                && last.is_some_and(|last| last <= through)
        };
        self.next = from;
        let chunks: Vec<_> = chunks.iter().filter(|chunk| is_due(chunk)).cloned().collect();
        self.update_report(|report| {
            report.chunks = chunks.len() as u64;
            report.resumed_from = Some(from).filter(|from| *from > 0);
        });
        for chunk in &chunks {
            self.examine(chunk)?;
            self.update_report(|report| report.chunks_examined += 1);
            self.next = chunk.start + chunk.capacity;
            if self.swapped.len() >= CHUNKS_PER_FLUSH {
                self.finish_swapped()?;
            }
        }
        self.finish_swapped()?;
        shared.log.set_scavenge_from(0)?;
        if self.options.removes_all {
            let left = self.count_hidden_events_with_data()?;
            let kept = index_cleanup::replaced_files(&shared.components)?;
            self.update_report(|report| {
                report.hidden_events_left = Some(left);
                report.files_kept = kept;
            });
        }
        Ok(())
    }

    /// Reads the log, and counts hidden events that still have data or metadata.
    fn count_hidden_events_with_data(&mut self) -> core::result::Result<u64, ScavengeHalt> {
        let shared = Arc::clone(&self.shared);
        let mut left = 0;
        for chunk in shared.log.chunks.all().iter() {
            let mut policy = RetentionPolicy::new(&shared.components, 0);
            let mut cursor = shared.log.cursor();
            let mut offset = chunk.first_offset();
            while let Some((frame, next)) = cursor.frame_and_next(chunk, offset)? {
                left += u64::from(match policy.verdict(&frame)? {
                    Verdict::Keep => false,
                    Verdict::Stub | Verdict::Drop => has_content(&frame, &[]),
                    Verdict::Replace(data) => has_content(&frame, data),
                });
                self.throttle(next - offset)?;
                offset = next;
            }
        }
        Ok(left)
    }

    /// Deletes the index entries of removed events, and removes the old files.
    fn finish_swapped(&mut self) -> Result<()> {
        if self.swapped.is_empty() {
            return Ok(());
        }
        self.shared.flush_index()?;
        let _flusher = self.shared.flush_lock.lock().ignore_poison();
        let swapped = std::mem::take(&mut self.swapped);
        let files = &self.shared.env.files;
        let has_other_names = |path: &PathBuf| {
            let opened = files.open(path, Access::Read);
            opened.and_then(|file| file.has_other_names()).unwrap_or(false)
        };
        let old: Vec<PathBuf> = swapped.iter().map(|(old, _)| old.path.clone()).collect();
        let linked = old.iter().filter(|path| has_other_names(path)).cloned().collect::<Vec<_>>();
        index_cleanup::remove_swapped_files(&self.shared.components, &swapped)?;
        let kept = old.into_iter().filter(|path| files.exists(path).unwrap_or(true));
        self.update_report(|report| {
            report.files_kept.extend(kept);
            report.files_with_other_names.extend(linked);
        });
        Ok(())
    }

    /// Judges the events of a chunk, and rewrites the chunk if it removes some of them.
    fn examine(&mut self, chunk: &Arc<Chunk>) -> core::result::Result<(), ScavengeHalt> {
        let Some((bytes, scavenged, report)) = self.rewrite(chunk)? else { return Ok(()) };
        if !self.reaches_threshold(chunk.file_bytes(), scavenged.file_bytes) {
            self.update_report(|all| all.chunks_below_threshold += 1);
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let next = match self.redacted.is_empty() {
            true => chunk.start + chunk.capacity,
            false => shared.log.scavenge_from(),
        };
        let path = shared.log.path(chunk.id, scavenged.version);
        let written = match self.write_or_remove(&path, &bytes) {
            Err(halt) if halt.is_full() => {
                // The prepared chunk and the replaced files may occupy disk space.
                self.finish_swapped()?;
                shared.log.release_next_chunk();
                self.write_or_remove(&path, &bytes)
            }
            written => written,
        };
        written?;
        // The events that hide others must not be lost while the hidden ones are.
        shared.sync_log()?;
        let new = shared.log.swap_chunk(chunk, scavenged, next)?;
        let given_back = chunk.file_bytes().saturating_sub(new.file_bytes());
        self.swapped.push((Arc::clone(chunk), new));
        self.update_report(|all| {
            all.chunks_rewritten += 1;
            all.events_removed += report.events_removed;
            all.events_stubbed += report.events_stubbed;
            all.bytes_freed += given_back;
        });
        Ok(())
    }

    /// Whether the share of dead bytes of a chunk is large enough for a rewrite. A redaction
    /// rewrites every chunk.
    fn reaches_threshold(&self, old_bytes: u64, new_bytes: u64) -> bool {
        if self.options.removes_all || !self.redacted.is_empty() {
            return true;
        }
        let dead = u128::from(old_bytes.saturating_sub(new_bytes));
        dead * 100 >= u128::from(old_bytes) * u128::from(self.options.dead_percent_min)
    }

    /// Returns the chunk's new file without the removed events, and the number of removed events;
    /// `None` if all events stay.
    fn rewrite(
        &mut self,
        chunk: &Arc<Chunk>,
    ) -> core::result::Result<Option<(Vec<u8>, ScavengedFile, ScavengeReport)>, ScavengeHalt> {
        let shared = Arc::clone(&self.shared);
        let mut version = chunk.version() + 1;
        while shared.env.files.exists(&shared.log.path(chunk.id, version))? {
            // A failed attempt left the file; the manifest on disk may name it.
            version += 1;
        }
        let stubs_from = shared.log.position_before_end(self.options.retry_bytes);
        let mut judge = RetentionPolicy::new(&shared.components, stubs_from);
        let mut packer = ScavengedChunkWriter::new(chunk.id, chunk.start, version, chunk.version());
        let gaps = shared.log.removed_events(chunk)?;
        let mut runs = gaps.runs.iter().peekable();
        let mut report = ScavengeReport::default();
        let mut cursor = shared.log.cursor();
        let mut offset = chunk.first_offset();
        while let Some((frame, next)) = cursor.frame_and_next(chunk, offset)? {
            while let Some(run) = runs.next_if(|run| run.position < frame.meta.position) {
                packer.copy_removed_run(&gaps, run);
            }
            report.events += 1;
            let verdict = match self.redacted.is_empty() {
                true => judge.verdict(&frame)?,
                false => redaction_verdict(&self.redacted, &frame),
            };
            match verdict {
                Verdict::Keep => packer.keep_event(&frame, frame.is_stub),
                Verdict::Stub => {
                    report.events_stubbed += u64::from(!frame.is_stub);
                    packer.keep_event(&frame, true);
                }
                Verdict::Replace(data) => {
                    report.events_stubbed += 1;
                    let event = NewEvent { data, metadata: &[], ..frame.event };
                    packer.keep_event(&Frame { event, ..frame }, false);
                }
                Verdict::Drop => {
                    report.events_removed += 1;
                    packer.remove_event(&frame);
                }
            }
            self.throttle(next - offset)?;
            offset = next;
        }
        runs.for_each(|run| packer.copy_removed_run(&gaps, run));
        self.update_report(|all| all.events += report.events);
        let is_changed = report.events_removed + report.events_stubbed > 0;
        Ok(is_changed.then(|| {
            let (bytes, scavenged) = packer.finish();
            (bytes, scavenged, report)
        }))
    }

    /// Writes a file, or removes it after an error.
    fn write_or_remove(
        &mut self,
        path: &std::path::Path,
        bytes: &[u8],
    ) -> core::result::Result<(), ScavengeHalt> {
        let written = self.write(path, bytes);
        if written.is_err() {
            // The first failure is reported.
            let _ = self.shared.env.files.remove_file(path);
        }
        written
    }

    fn write(
        &mut self,
        path: &std::path::Path,
        bytes: &[u8],
    ) -> core::result::Result<(), ScavengeHalt> {
        let shared = Arc::clone(&self.shared);
        let file = shared.env.files.create(path)?;
        let mut offset = 0;
        for slice in bytes.chunks(SLICE_BYTES as usize) {
            let end = offset + slice.len() as u64;
            file.write_all_at(slice, offset)?;
            file.write_back(offset..end);
            self.throttle(slice.len() as u64)?;
            offset = end;
        }
        file.sync()?;
        let folder = path.parent().unwrap_or(path);
        Ok(shared.env.files.sync_dir(folder)?)
    }

    /// Counts the bytes that were read or written, and pauses for other work.
    fn throttle(&mut self, bytes: u64) -> core::result::Result<(), ScavengeHalt> {
        let Some(pause) = self.throttle.record(bytes) else { return Ok(()) };
        let mut left = pause;
        loop {
            self.shared.check_writable()?;
            let nap = left.min(STOP_CHECK_INTERVAL);
            if self.control.stopped.wait(nap) {
                return Err(ScavengeHalt::Stopped);
            }
            left -= nap;
            if left.is_zero() {
                break;
            }
        }
        self.throttle.resume();
        Ok(())
    }
}
