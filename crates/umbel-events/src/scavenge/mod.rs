//! Scavenging: events that nobody can read from their streams any more give their space back,
//! while appends and reads go on.
//!
//! One chunk after the other: its events are judged, what stays is written to another file, that
//! is made durable, and takes the chunk's place in the table of chunks. What the verdicts rest on
//! is made durable before. Then the index forgets what went, and the old file is removed.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use umbel_env::{Clock, JoinHandle, ProcessMark};

use crate::chunk::Chunk;
use crate::chunk_table::Packed;
use crate::error::{Error, Result};
use crate::limits::WINDOW_BYTES;
use crate::lock::locked;
use crate::packed::Packer;
use crate::shared::Shared;
use crate::sweep;
use crate::verdict::{Judge, Verdict};

/// Old files stay until so many chunks were written anew; then the index is flushed once for all.
const CHUNKS_AT_ONCE: usize = 4;
/// How much is read or written between two looks at the clock.
const SLICE_BYTES: u64 = 64 << 10;
/// No pause is longer.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long a pause goes on without a look whether the store was closed.
const NAP: Duration = Duration::from_millis(50);

/// How a scavenge is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScavengeOptions {
    /// The most bytes of the log that are read and written a second, together; `None` for as many
    /// as the share of time allows.
    pub bytes_per_second: Option<u64>,
    /// How much of its time it works, in percent, 1 to 100; the rest it leaves to others.
    pub busy_percent: u64,
    /// Begin with the oldest chunk also where an earlier scavenge did not end.
    pub from_start: bool,
    /// Of the newest events of the store, so many bytes back, hidden ones leave their ids, so that
    /// the appends that made them are known if they are tried again.
    pub retry_bytes: u64,
}

impl Default for ScavengeOptions {
    fn default() -> ScavengeOptions {
        let (bytes_per_second, from_start) = (None, false);
        let retry_bytes = WINDOW_BYTES;
        ScavengeOptions { bytes_per_second, busy_percent: 25, from_start, retry_bytes }
    }
}

impl ScavengeOptions {
    fn check(&self) -> Result<()> {
        if !(1..=100).contains(&self.busy_percent) {
            let percent = self.busy_percent;
            return Err(Error::invalid(format!("busy_percent is {percent}, but must be 1 to 100")));
        }
        if self.bytes_per_second == Some(0) {
            return Err(Error::invalid(
                "bytes_per_second is 0, with which nothing would ever be done; say 1 at least",
            ));
        }
        Ok(())
    }
}

/// What a scavenge has done, so far or in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScavengeReport {
    /// Chunks that have to be looked at.
    pub chunks: u64,
    /// Chunks that were.
    pub chunks_examined: u64,
    /// Chunks that were written anew.
    pub chunks_packed: u64,
    /// Events examined.
    pub events: u64,
    /// Events that are gone.
    pub events_removed: u64,
    /// Events that lost their data and metadata; their ids and revisions are needed yet.
    pub events_emptied: u64,
    /// Bytes of the log that were given back.
    pub bytes_given_back: u64,
    /// Where it went on, if an earlier scavenge had not ended.
    pub resumed_from: Option<u64>,
    /// Whether everything was looked at; `false` where it was stopped.
    pub is_complete: bool,
}

/// A scavenge on a thread of its own. Dropping it stops the scavenge.
#[derive(Debug)]
pub struct Scavenge {
    /// The process whose thread it is. For a forked child it is over.
    process: ProcessMark,
    folder: PathBuf,
    control: Arc<Control>,
    thread: Option<Box<dyn JoinHandle>>,
}

#[derive(Debug, Default)]
struct Control {
    report: Mutex<ScavengeReport>,
    outcome: Mutex<Option<Result<ScavengeReport>>>,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
    is_over: Mutex<bool>,
    over: Condvar,
}

/// Says that it is over, however it ends.
struct Ending(Arc<Control>);

impl Drop for Ending {
    fn drop(&mut self) {
        *locked(&self.0.is_over) = true;
        self.0.over.notify_all();
    }
}

impl Scavenge {
    /// What it has done so far.
    pub fn progress(&self) -> ScavengeReport {
        if !self.process.is_current() {
            return ScavengeReport::default();
        }
        *locked(&self.control.report)
    }

    /// Whether it has ended. For a forked child, which does not have it, it has.
    pub fn is_done(&self) -> bool {
        !self.process.is_current() || *locked(&self.control.is_over)
    }

    /// Waits until it has ended, at most as long as said. Says whether it has.
    pub fn wait_for(&self, most: Duration) -> bool {
        if !self.process.is_current() {
            return true;
        }
        let is_over = locked(&self.control.is_over);
        let waited = self.control.over.wait_timeout_while(is_over, most, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Has it end soon. What it did stays, and another scavenge goes on there.
    pub fn stop(&self) {
        if self.process.is_current() {
            self.control.stop();
        }
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// As [`Store::scavenge`](crate::Store::scavenge).
    pub fn wait(mut self) -> Result<ScavengeReport> {
        if !self.process.is_current() {
            return Err(umbel::Error::Forked(self.folder.clone()).into());
        }
        self.thread.take().map(JoinHandle::join);
        let outcome = locked(&self.control.outcome).take();
        outcome.unwrap_or_else(|| Err(Error::invalid("internal: the scavenge ended in a panic")))
    }
}

impl Drop for Scavenge {
    fn drop(&mut self) {
        self.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

impl Control {
    fn stop(&self) {
        *locked(&self.is_stopped) = true;
        self.stopped.notify_all();
    }

    /// Waits so long, or until it is stopped. Says whether it is.
    fn pause(&self, most: Duration) -> bool {
        let stopped = locked(&self.is_stopped);
        let waited = self.stopped.wait_timeout_while(stopped, most, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Why a scavenge ends before everything was looked at.
enum Halt {
    Stopped,
    Failed(Error),
}

impl Halt {
    /// Whether the disk has no room.
    fn is_full(&self) -> bool {
        matches!(self, Halt::Failed(Error::Store(umbel::Error::Full { .. })))
    }
}

impl<E: Into<Error>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Failed(error.into())
    }
}

/// Scavenges, and returns when that is done.
pub fn run(shared: &Arc<Shared>, options: &ScavengeOptions) -> Result<ScavengeReport> {
    let work = begin(shared, options)?;
    work.run()
}

/// Scavenges on a thread of its own.
pub fn start(shared: &Arc<Shared>, options: &ScavengeOptions) -> Result<Scavenge> {
    let work = begin(shared, options)?;
    let control = Arc::clone(&work.control);
    let ending = Ending(Arc::clone(&control));
    let run = move || {
        let outcome = work.run();
        *locked(&ending.0.outcome) = Some(outcome);
    };
    let thread = Some(shared.env.threads.spawn("umbel-scavenge", Box::new(run))?);
    let (process, folder) = (shared.open.process(), shared.folder.clone());
    Ok(Scavenge { process, folder, control, thread })
}

fn begin(shared: &Arc<Shared>, options: &ScavengeOptions) -> Result<Work> {
    options.check()?;
    shared.check_writable()?;
    if !shared.scavenger.take() {
        return Err(Error::invalid(
            "the store is being scavenged already; wait until that has ended, or stop it",
        ));
    }
    let clock = Arc::clone(&shared.env.clock);
    let last = clock.now();
    Ok(Work {
        shared: Arc::clone(shared),
        options: options.clone(),
        control: Arc::default(),
        swapped: Vec::new(),
        next: 0,
        pace: Pace { clock, last, bytes: 0 },
    })
}

/// When the last pause was, and how much was done since.
struct Pace {
    clock: Arc<dyn Clock>,
    last: Duration,
    bytes: u64,
}

/// A scavenge. It has the store's turn until it is dropped.
struct Work {
    shared: Arc<Shared>,
    options: ScavengeOptions,
    control: Arc<Control>,
    /// Chunks that were written anew and whose old files are there yet, each with what took its
    /// place.
    swapped: Vec<(Arc<Chunk>, Arc<Chunk>)>,
    /// Where another scavenge would go on.
    next: u64,
    pace: Pace,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.shared.scavenger.give_back();
    }
}

impl Work {
    fn run(mut self) -> Result<ScavengeReport> {
        let done = self.examine_all();
        if done.is_err() {
            // Where it fails, the next scavenge or open does it.
            let settled = self.settle();
            if matches!(done, Err(Halt::Stopped)) {
                settled?;
                self.shared.log.set_scavenge_from(self.next)?;
            }
        }
        match done {
            Ok(()) => self.note(|report| report.is_complete = true),
            Err(Halt::Stopped) => {}
            Err(Halt::Failed(error)) => return Err(error),
        }
        Ok(*locked(&self.control.report))
    }

    fn note(&self, change: impl FnOnce(&mut ScavengeReport)) {
        change(&mut locked(&self.control.report));
    }

    fn examine_all(&mut self) -> core::result::Result<(), Halt> {
        let shared = Arc::clone(&self.shared);
        shared.flush_index()?;
        {
            let _flusher = locked(&shared.flusher);
            sweep::finish(&shared.parts)?;
        }
        let through = shared.index.durable_through()?;
        let resumed = shared.log.scavenge_from();
        let from = if self.options.from_start { 0 } else { resumed };
        let chunks = shared.log.chunks.all();
        let is_due = |chunk: &Arc<Chunk>| {
            let last = chunk.last_event().map(|last| chunk.start + last);
            chunk.ended.get().is_some()
                && chunk.start >= from
                && last.is_some_and(|last| last <= through)
        };
        self.next = from;
        let chunks: Vec<_> = chunks.iter().filter(|chunk| is_due(chunk)).cloned().collect();
        self.note(|report| {
            report.chunks = chunks.len() as u64;
            report.resumed_from = Some(from).filter(|from| *from > 0);
        });
        for chunk in &chunks {
            self.examine(chunk)?;
            self.note(|report| report.chunks_examined += 1);
            self.next = chunk.start + chunk.capacity;
            if self.swapped.len() >= CHUNKS_AT_ONCE {
                self.settle()?;
            }
        }
        self.settle()?;
        Ok(shared.log.set_scavenge_from(0)?)
    }

    /// Has the index forget what went, and removes the old files.
    fn settle(&mut self) -> Result<()> {
        if self.swapped.is_empty() {
            return Ok(());
        }
        self.shared.flush_index()?;
        let _flusher = locked(&self.shared.flusher);
        let swapped = std::mem::take(&mut self.swapped);
        sweep::settle(&self.shared.parts, &swapped)
    }

    /// Judges the events of a chunk, and writes it anew where some of them go.
    fn examine(&mut self, chunk: &Arc<Chunk>) -> core::result::Result<(), Halt> {
        let Some((bytes, packed, report)) = self.pack(chunk)? else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let path = shared.log.path(chunk.id, packed.version);
        let written = match self.write_or_remove(&path, &bytes) {
            Err(halt) if halt.is_full() => {
                // There may be room in what was made ready, and in the files that were replaced.
                self.settle()?;
                shared.log.shed();
                self.write_or_remove(&path, &bytes)
            }
            written => written,
        };
        written?;
        // What hid the events must not be lost where these are.
        shared.sync_log()?;
        let new = shared.log.swap(chunk, packed, chunk.start + chunk.capacity)?;
        let given_back = chunk.file_bytes().saturating_sub(new.file_bytes());
        self.swapped.push((Arc::clone(chunk), new));
        self.note(|all| {
            all.chunks_packed += 1;
            all.events_removed += report.events_removed;
            all.events_emptied += report.events_emptied;
            all.bytes_given_back += given_back;
        });
        Ok(())
    }

    /// The file of the chunk without what goes, and how many events that are; `None` where nothing
    /// does.
    fn pack(
        &mut self,
        chunk: &Arc<Chunk>,
    ) -> core::result::Result<Option<(Vec<u8>, Packed, ScavengeReport)>, Halt> {
        let shared = Arc::clone(&self.shared);
        let mut version = chunk.version() + 1;
        while shared.env.files.exists(&shared.log.path(chunk.id, version))? {
            // Left by an attempt that failed; the table on the disk may name it.
            version += 1;
        }
        let stubs_from = shared.log.position_before_end(self.options.retry_bytes);
        let mut judge = Judge::new(&shared.parts, stubs_from);
        let mut packer = Packer::new(chunk.id, chunk.start, version, chunk.version());
        let gaps = shared.log.gaps(chunk)?;
        let mut runs = gaps.runs.iter().peekable();
        let mut report = ScavengeReport::default();
        let mut cursor = shared.log.cursor();
        let mut offset = chunk.first_offset();
        while let Some((frame, next)) = cursor.walk(chunk, offset)? {
            while let Some(run) = runs.next_if(|run| run.position < frame.stamp.position) {
                packer.leave_again(&gaps, run);
            }
            report.events += 1;
            match judge.judge(&frame)? {
                Verdict::Stay => packer.keep(&frame, frame.is_stub),
                Verdict::Stub => {
                    report.events_emptied += u64::from(!frame.is_stub);
                    packer.keep(&frame, true);
                }
                Verdict::Go => {
                    report.events_removed += 1;
                    packer.leave(&frame);
                }
            }
            self.tick(next - offset)?;
            offset = next;
        }
        runs.for_each(|run| packer.leave_again(&gaps, run));
        self.note(|all| all.events += report.events);
        let is_changed = report.events_removed + report.events_emptied > 0;
        Ok(is_changed.then(|| {
            let (bytes, packed) = packer.finish();
            (bytes, packed, report)
        }))
    }

    /// Writes a file, or leaves none.
    fn write_or_remove(
        &mut self,
        path: &std::path::Path,
        bytes: &[u8],
    ) -> core::result::Result<(), Halt> {
        let written = self.write(path, bytes);
        if written.is_err() {
            // The first failure is the one to report.
            let _ = self.shared.env.files.remove_file(path);
        }
        written
    }

    fn write(&mut self, path: &std::path::Path, bytes: &[u8]) -> core::result::Result<(), Halt> {
        let shared = Arc::clone(&self.shared);
        let file = shared.env.files.create(path)?;
        let mut offset = 0;
        for slice in bytes.chunks(SLICE_BYTES as usize) {
            let end = offset + slice.len() as u64;
            file.write_all_at(slice, offset)?;
            file.write_back(offset..end);
            self.tick(slice.len() as u64)?;
            offset = end;
        }
        file.sync()?;
        let folder = path.parent().unwrap_or(path);
        Ok(shared.env.files.sync_dir(folder)?)
    }

    /// Notes that so many bytes were read or written, and leaves others their time.
    fn tick(&mut self, bytes: u64) -> core::result::Result<(), Halt> {
        self.pace.bytes += bytes;
        if self.pace.bytes < SLICE_BYTES {
            return Ok(());
        }
        let worked = self.pace.clock.now().saturating_sub(self.pace.last);
        let percent = u32::try_from(self.options.busy_percent).unwrap_or(100).max(1);
        let mut pause = worked * (100 - percent.min(100)) / percent;
        if let Some(rate) = self.options.bytes_per_second {
            let wanted = Duration::from_secs_f64(self.pace.bytes as f64 / rate as f64);
            pause = pause.max(wanted.saturating_sub(worked));
        }
        let mut left = pause.min(PAUSE_MAX);
        loop {
            self.shared.check_writable()?;
            let nap = left.min(NAP);
            if self.control.pause(nap) {
                return Err(Halt::Stopped);
            }
            left -= nap;
            if left.is_zero() {
                break;
            }
        }
        self.pace.last = self.pace.clock.now();
        self.pace.bytes = 0;
        Ok(())
    }
}
