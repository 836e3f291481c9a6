//! [`EventLog`]: the chunks on disk and their durable part, and [`LogCursor`], which reads their
//! events. The chunk to which events are appended belongs to a [`ChunkWriter`].
//!
//! INVARIANT: a position is never used twice. Unless a chunk was scavenged, the position of an
//! event is the chunk's start plus the event's offset in the chunk's file. The file of a scavenged
//! chunk has a map from positions to offsets. The next chunk's positions begin after the capacity
//! of the chunk before it. No chunk is written again once the process that wrote it has ended. In a
//! replica, the slots decide the contents of each position instead, and a chunk goes on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, PinnedFiles, Prefaulter};
use umbel_log::{
    END_RECORD_BYTES, HEADER_BYTES, LogKind, LogOptions, LogProgress, LogWriter, record_bytes,
};

use crate::event_log::chunk::{Chunk, ChunkList};
use crate::event_log::chunk_manifest::{
    ChunkEnd, ChunkEntry, ChunkManifest, chunk_directory, chunk_path,
};
use crate::event_log::clock_epochs::OpenEpochs;
use crate::event_log::event_format::FrameMeta;
use crate::limits::RESTORE_GAP_BYTES;
use crate::primitives::store_clock::StoreClock;

mod chunk_swap;
mod chunk_writer;
mod log_cursor;
mod log_lineage;
mod replica_chunks;

pub mod chunk;
pub mod chunk_bytes;
pub mod chunk_manifest;
pub mod chunk_scan;
pub mod clock_epochs;
pub mod durable_chunks;
pub mod event_format;
pub mod log_bytes;
pub mod read_buffer;
pub mod replica_file;
pub mod scavenged_chunk;

pub use chunk_writer::{AppendStart, ChunkWriter};
#[cfg(test)]
pub use log_cursor::FRAMES_READ;
pub use log_cursor::LogCursor;
pub use replica_chunks::ChunkBeginning;

/// Capacity of the first chunk; each later chunk has twice the capacity of the one before it, up to
/// the configured maximum.
const FIRST_CHUNK_BYTES: u64 = 4 << 20;
/// Capacities of a chunk for deletes on a full disk. The smaller capacity leaves disk space for the
/// chunk manifest, if only a segment of the index was freed for the chunk.
const SMALL_CHUNKS_BYTES: [u64; 2] = [64 << 10, 8 << 10];
/// Deletes on a full disk continue while all chunks that the index lacks, except the oldest of
/// them, have a smaller total capacity than this.
const SHORT_CHUNK_BYTES: u64 = 1 << 20;
/// A close writes the believed time into the manifest if it is this many ticks later, one day.
const CLOCK_MARK_AGE_MAX: u64 = 24 * 60 * 60 * 10_000_000;
/// Minimum bytes for which pages are released before their sync.
const RELEASE_BYTES: u64 = 256 << 10;

/// The event log of a store.
#[derive(Debug)]
pub struct EventLog {
    env: Env,
    folder: PathBuf,
    chunk_bytes: u64,
    /// Whether events stay buffered in memory until a sync.
    defers_writes: bool,
    /// The chunks as readers see them.
    pub chunks: ChunkList,
    /// Clock epochs. Only an open begins one, and a replica that applies a slot.
    pub epochs: OpenEpochs,
    /// The store's clock, whose time each manifest records; unset while the store is being opened.
    pub clock: OnceLock<Arc<StoreClock>>,
    /// The manifest as it was last written.
    pub manifest: Mutex<ChunkManifest>,
    /// Chunks that were written and not synced to their end, oldest first.
    unsynced: Mutex<Vec<UnsyncedChunk>>,
    /// Events below this position are durable.
    durable: AtomicU64,
    /// The prepared chunk, in which the log continues when the current chunk is full.
    next_chunk: Mutex<Option<(Arc<Chunk>, LogWriter)>>,
    /// Chunks that the manifest on disk may or may not name.
    uncertain_chunks: Mutex<Vec<u64>>,
    /// Lock that is held while files of chunks are copied, so that no chunk is replaced meanwhile.
    pub copy_lock: Mutex<()>,
    /// Reason why the log accepts no more writes; `None` while it does.
    pub fatal_error: Arc<OnceLock<String>>,
    /// Files that no manifest names any more but that readers of other processes may know. A
    /// version is the generation of the manifest that a reader read.
    pub pinned_files: Arc<PinnedFiles>,
}

/// A chunk that was written and not synced to its end.
#[derive(Debug)]
struct UnsyncedChunk {
    chunk: Arc<Chunk>,
    progress: Arc<LogProgress>,
    /// The pages of the chunk, if its file is mapped.
    pages: Option<Arc<dyn Prefaulter>>,
}

impl UnsyncedChunk {
    /// Makes the chunk durable up to `end`.
    fn sync(&self, end: u64) -> Result<()> {
        let durable = self.progress.durable();
        if end <= durable {
            return Ok(());
        }
        if end - durable >= RELEASE_BYTES
            && let Some(pages) = &self.pages
        {
            // Writing back a mapped page costs a call to every processor.
            pages.release(durable..end);
        }
        self.progress.sync()
    }
}

impl EventLog {
    /// Creates the log of a manifest in which every chunk has ended. `shape` is the maximum bytes
    /// of a chunk, and whether events may stay in memory until a sync.
    pub fn new(
        env: &Env,
        folder: PathBuf,
        shape: (u64, bool),
        manifest: ChunkManifest,
        kept: Arc<PinnedFiles>,
    ) -> EventLog {
        let chunks = manifest.chunks.iter().map(|entry| Arc::new(Chunk::new(&folder, entry)));
        let chunks = ChunkList::new(env, chunks.collect());
        EventLog::with_chunks(env, folder, shape, (manifest, chunks), kept)
    }

    /// Creates a log that is only read. `growing` are the ids of the chunks that a writer may have
    /// open; the reader uses only the part before the end that `manifest` states.
    pub fn read_only(
        env: &Env,
        folder: &Path,
        manifest: ChunkManifest,
        growing: &[u64],
    ) -> EventLog {
        let chunk = |entry: &ChunkEntry| match growing.contains(&entry.id) {
            true => Arc::new(Chunk::open_in_other_process(folder, entry)),
            false => Arc::new(Chunk::new(folder, entry)),
        };
        let chunks = ChunkList::read_only(env, manifest.chunks.iter().map(chunk).collect());
        let kept = Arc::new(PinnedFiles::new(Arc::clone(&env.files), None));
        EventLog::with_chunks(env, folder.to_path_buf(), (0, false), (manifest, chunks), kept)
    }

    fn with_chunks(
        env: &Env,
        folder: PathBuf,
        (chunk_bytes, holds): (u64, bool),
        (manifest, chunks): (ChunkManifest, ChunkList),
        kept: Arc<PinnedFiles>,
    ) -> EventLog {
        EventLog {
            env: env.clone(),
            folder,
            chunk_bytes,
            defers_writes: holds,
            chunks,
            durable: AtomicU64::new(manifest.next_start),
            epochs: OpenEpochs::new(manifest.epochs.clone()),
            clock: OnceLock::new(),
            manifest: Mutex::new(manifest),
            unsynced: Mutex::default(),
            next_chunk: Mutex::default(),
            uncertain_chunks: Mutex::default(),
            copy_lock: Mutex::default(),
            fatal_error: Arc::default(),
            pinned_files: kept,
        }
    }

    /// Bytes of the written parts of the chunks.
    pub fn bytes(&self) -> u64 {
        self.chunks.all().iter().map(|chunk| chunk.file_bytes()).sum()
    }

    /// Bytes of the log after one position, up to another one. The distance of the positions is
    /// larger, since chunks that were not filled leave gaps between them. In a rewritten chunk,
    /// positions do not correspond to bytes, so at most all of its bytes count.
    pub fn bytes_between(&self, after: u64, through: u64) -> u64 {
        let chunks = self.chunks.all();
        let first = chunks.partition_point(|chunk| chunk.start <= after).saturating_sub(1);
        let wanted = chunks[first..].iter().take_while(|chunk| chunk.start < through);
        let bytes = wanted.map(|chunk| {
            let end = through.min(chunk.start + chunk.end());
            end.saturating_sub(after.max(chunk.start)).min(chunk.file_bytes())
        });
        bytes.sum()
    }

    /// Position after which the newest events take this many bytes of the log, or a little more.
    /// Positions alone do not show this: chunks that were not filled leave gaps between them.
    pub fn position_before_end(&self, bytes: u64) -> u64 {
        let mut left = bytes;
        for chunk in self.chunks.all().iter().rev() {
            match left.checked_sub(chunk.file_bytes()) {
                None if left == 0 => return chunk.start + chunk.capacity,
                Some(rest) => left = rest,
                // Positions in a rewritten chunk do not correspond to bytes of its file.
                None if chunk.scavenged.is_some() => return chunk.start,
                None => return chunk.start + chunk.file_bytes() - left,
            }
        }
        0
    }

    /// Position before which a restore or a repair left a gap after `visible`, the last event.
    /// Events of the original store can have been there. `None` without such a gap.
    pub fn gap_end(&self, visible: u64) -> Option<u64> {
        let manifest = self.manifest.lock().ignore_poison();
        let before = manifest.chunks.iter().take_while(|chunk| chunk.start <= visible).last();
        let end = before.map_or(0, |chunk| chunk.start + chunk.capacity);
        let mut starts = manifest.chunks.iter().map(|chunk| chunk.start);
        let next = starts.find(|start| *start > visible).unwrap_or(manifest.next_start);
        (next.saturating_sub(end) >= RESTORE_GAP_BYTES).then_some(next)
    }

    /// Events below this position are durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Start of the last chunk that has an event; 0 without events.
    pub fn last_chunk_start(&self) -> u64 {
        let chunks = self.chunks.all();
        let last = chunks.iter().rev().find(|chunk| chunk.last_event().is_some());
        last.map_or(0, |chunk| chunk.start)
    }

    /// Whether the chunks that begin after `position`, except the oldest of them, are small in
    /// total.
    pub fn are_chunks_small_after(&self, position: u64) -> bool {
        let chunks = self.chunks.all();
        let after = chunks.iter().skip_while(|chunk| chunk.start <= position);
        after.skip(1).map(|chunk| chunk.capacity).sum::<u64>() < SHORT_CHUNK_BYTES
    }

    /// Position of the last event in the log; `None` without events.
    pub fn last_position(&self) -> Option<u64> {
        let chunks = self.chunks.all();
        chunks.iter().rev().find_map(|chunk| Some(chunk.start + chunk.last_event()?))
    }

    /// Returns the time of an event by which events are ordered and expire; see
    /// [`ClockEpochs::ordered_time`].
    pub fn ordered_time(&self, meta: &FrameMeta) -> u64 {
        self.epochs.ordered_time(meta.position, meta.created)
    }

    /// Makes everything durable that was appended before the call.
    ///
    /// # Errors
    /// - A failed sync is fatal: the data may be lost even if a later sync succeeds.
    /// - [`Error::DiskFull`] is not fatal: the data of the failed write is still in memory.
    pub fn sync(&self) -> Result<()> {
        self.try_sync().inspect_err(|error| {
            if !self.is_retryable(error) {
                self.record_fatal_error(error);
            }
        })
    }

    /// Records the reason why the log accepts no more writes; an earlier reason is kept.
    fn record_fatal_error(&self, error: &Error) {
        let _ = self.fatal_error.set(error.to_string());
    }

    /// Whether a write failed because the disk is full, and all chunks can be written once the disk
    /// has space.
    fn is_retryable(&self, error: &Error) -> bool {
        let has_failed = |written: &UnsyncedChunk| written.progress.has_failed();
        matches!(error, Error::DiskFull { .. })
            && !self.unsynced.lock().ignore_poison().iter().any(has_failed)
    }

    fn try_sync(&self) -> Result<()> {
        let mut unsynced = self.unsynced.lock().ignore_poison();
        let mut durable = self.durable();
        let mut done = 0;
        for (index, written) in unsynced.iter().enumerate() {
            // Before reading its end: once this says that the chunk ended, its end is in the file.
            let has_ended = written.chunk.ended.get().is_some();
            let end = written.progress.end();
            let was_durable = end <= written.progress.durable();
            written.sync(end)?;
            if !has_ended || !was_durable {
                // A chunk that ended and is durable may be rewritten, and its file removed.
                self.check_chunk_file(&written.chunk)?;
            }
            durable = durable.max(written.chunk.start + end);
            if !has_ended {
                // The next chunk may already exist and have events. They are not durable before
                // this one is durable to its end.
                break;
            }
            if index + 1 < unsynced.len() {
                done = index + 1;
            }
        }
        self.check_directory()?;
        unsynced.drain(..done);
        self.durable.fetch_max(durable, Ordering::Release);
        Ok(())
    }

    /// Directory of the store whose log this is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns an error where the directory was removed: data synced in it is lost with this
    /// handle.
    fn check_directory(&self) -> Result<()> {
        fail_point!("sync-skip-directory-check", |_| Ok(()));
        self.env.files.check_directory(&self.folder)
    }

    /// Returns an error where the directory was removed, or the file of a chunk removed or
    /// replaced.
    fn check_chunk_file(&self, chunk: &Chunk) -> Result<()> {
        fail_point!("sync-skip-directory-check", |_| Ok(()));
        self.check_directory()?;
        self.env.files.check_named(&chunk_path(&self.folder, chunk.id))
    }

    /// Prepares a chunk with a capacity of at least `payload_bytes`, unless a prepared chunk is
    /// ready. For deletes, the chunk may be smaller than usual if the disk has no space for the
    /// usual size.
    pub fn prepare_chunk(&self, payload_bytes: usize, frees_space: bool) -> Result<()> {
        let mut next = self.next_chunk.lock().ignore_poison();
        if next.as_ref().is_some_and(|(_, writer)| writer.fits(payload_bytes)) {
            return Ok(());
        }
        if let Some((chunk, _)) = next.take() {
            // Too small: it stays empty, and its positions are never used.
            let _ = chunk.ended.set(ChunkEnd::EMPTY);
        }
        // The manifest records these chunks as ended, so they must be durable first.
        let ended: Vec<_> =
            self.chunks.all().iter().filter(|c| c.ended.get().is_some()).cloned().collect();
        self.sync()?;
        let mut manifest = self.manifest.lock().ignore_poison();
        let mut changed = manifest.clone();
        let capacity_min = FIRST_CHUNK_BYTES.min(self.chunk_bytes);
        let doubled = manifest.last().map_or(capacity_min, |last| last.capacity.saturating_mul(2));
        let wanted = HEADER_BYTES + record_bytes(payload_bytes as u64) + END_RECORD_BYTES;
        let capacity =
            doubled.clamp(capacity_min, self.chunk_bytes).max(wanted).next_multiple_of(4096);
        for chunk in &ended {
            set_chunk_end(&mut changed, chunk);
        }
        let empty = changed.remove_empty();
        let mut made = self.create_chunk(changed.next_id, capacity);
        for smaller in SMALL_CHUNKS_BYTES.into_iter().chain([0]) {
            if frees_space && matches!(made, Err(Error::DiskFull { .. })) {
                let capacity = smaller.max(wanted).next_multiple_of(4096);
                made = self.create_chunk(changed.next_id, capacity);
            }
        }
        let mut writer = made?;
        let entry = changed.add(writer.capacity(), self.env.entropy.number()?);
        writer.file().sync()?;
        self.env.files.sync_dir(&chunk_directory(&self.folder))?;
        writer.set_durable(HEADER_BYTES);
        if let Err(error) = self.publish(&mut manifest, changed) {
            // The manifest on disk may name the chunk: the file stays.
            self.uncertain_chunks.lock().ignore_poison().push(entry.id);
            return Err(error);
        }
        drop(manifest);
        self.forget_chunks(&empty);
        self.remove_chunks(&std::mem::take(&mut *self.uncertain_chunks.lock().ignore_poison()));
        let chunk = Arc::new(Chunk::with_progress(&self.folder, &entry, writer.progress()));
        self.chunks.add(&chunk);
        *next = Some((chunk, writer));
        Ok(())
    }

    /// Creates the file of a chunk that no manifest names yet.
    fn create_chunk(&self, id: u64, capacity: u64) -> Result<LogWriter> {
        let path = chunk_path(&self.folder, id);
        if self.env.files.exists(&path)? {
            // An earlier attempt failed; the file was empty when the store was opened.
            self.env.files.remove_file(&path)?;
        }
        let options =
            LogOptions { kind: LogKind::Events, log_id: id, salt: 0, segment_bytes: capacity };
        match self.defers_writes {
            true => LogWriter::create_deferred(&self.env, &path, options),
            false => LogWriter::create(&self.env, &path, options),
        }
    }

    /// Replaces the current manifest by a changed one, on disk first.
    fn publish(&self, manifest: &mut ChunkManifest, mut changed: ChunkManifest) -> Result<()> {
        let mark = self.clock.get().and_then(|clock| clock.mark());
        changed.clock = mark.or(changed.clock);
        let written = changed.write(&self.env, &self.folder);
        match written {
            Ok(()) => *manifest = changed,
            // Either may be on disk, and a reader may have read the changed one. So its generation,
            // ids and positions are not used again.
            Err(_) => manifest.skip_past(&changed),
        }
        written
    }

    /// Removes a file that the manifest does not name any more, once no reader may know the file.
    /// REQUIRES: the manifest is durable.
    pub fn remove_file(&self, path: &Path) {
        let version = self.manifest.lock().ignore_poison().previous_generation();
        self.pinned_files.remove_unpinned();
        self.pinned_files.remove(path, version);
    }

    /// Removes the files of chunks that no manifest names any more. A file that cannot be removed
    /// only costs disk space.
    fn remove_chunks(&self, ids: &[u64]) {
        ids.iter().for_each(|id| self.remove_file(&chunk_path(&self.folder, *id)));
    }

    fn take_next(
        &self,
        payload_bytes: usize,
        frees_space: bool,
    ) -> Result<(Arc<Chunk>, LogWriter)> {
        loop {
            self.prepare_chunk(payload_bytes, frees_space)?;
            // Another thread may prepare a chunk, but only one appends.
            if let Some((chunk, writer)) = self.next_chunk.lock().ignore_poison().take() {
                let (progress, pages) = (Arc::clone(writer.progress()), writer.prefaulter());
                let written = UnsyncedChunk { chunk: Arc::clone(&chunk), progress, pages };
                self.unsynced.lock().ignore_poison().push(written);
                return Ok((chunk, writer));
            }
        }
    }

    /// Makes a taken chunk, to which nothing was appended, the prepared chunk again.
    fn return_next(&self, chunk: Arc<Chunk>, writer: LogWriter) {
        self.unsynced.lock().ignore_poison().retain(|written| written.chunk.id != chunk.id);
        *self.next_chunk.lock().ignore_poison() = Some((chunk, writer));
    }

    /// Progress of the chunk to which events are appended.
    fn active_progress(&self) -> Option<Arc<LogProgress>> {
        self.unsynced.lock().ignore_poison().last().map(|written| Arc::clone(&written.progress))
    }

    /// Whether more of the active chunk should be filled with zeros.
    pub fn needs_fill(&self) -> bool {
        self.defers_writes && self.active_progress().is_some_and(|progress| progress.wants_fill())
    }

    /// Fills more of the active chunk with zeros, if a fill is due.
    pub fn fill_ahead(&self) -> Result<()> {
        self.active_progress().map_or(Ok(()), |progress| progress.fill_ahead())
    }

    /// Frees the disk space of the prepared chunk when the disk is full. The freed chunk stays
    /// empty; another chunk is prepared when the disk has space. Returns `false` if no chunk was
    /// prepared.
    pub fn release_next_chunk(&self) -> bool {
        let Some((chunk, mut writer)) = self.next_chunk.lock().ignore_poison().take() else {
            return false;
        };
        let _ = chunk.ended.set(ChunkEnd::EMPTY);
        writer.release_unused_space().is_ok()
    }

    /// Whether a chunk is prepared, in which the log continues when the current chunk is full.
    pub fn has_next_chunk(&self) -> bool {
        self.next_chunk.lock().ignore_poison().is_some()
    }

    /// Writes the manifest with the end of every chunk, all of which are durable, and frees unused
    /// disk space.
    ///
    /// REQUIRES: no thread appends any more.
    pub fn write_chunk_ends(&self) -> Result<()> {
        if let Some((chunk, writer)) = self.next_chunk.lock().ignore_poison().take() {
            drop(writer);
            let _ = chunk.ended.set(ChunkEnd::EMPTY);
        }
        self.sync()?;
        let mut manifest = self.manifest.lock().ignore_poison();
        let mut changed = manifest.clone();
        for chunk in self.chunks.all().iter() {
            set_chunk_end(&mut changed, chunk);
        }
        let empty = changed.remove_empty();
        if changed == *manifest && !self.is_clock_mark_old(&manifest) {
            return Ok(());
        }
        let newly_ended = changed.chunks.iter().filter_map(|entry| {
            let was_known = manifest.entry(entry.id).is_some_and(|old| old.ended.is_some());
            entry.ended.filter(|_| !was_known).map(|ended| (entry.id, ended))
        });
        let newly_ended: Vec<(u64, ChunkEnd)> = newly_ended.collect();
        self.publish(&mut manifest, changed)?;
        drop(manifest);
        self.forget_chunks(&empty);
        for (id, ended) in newly_ended {
            self.trim_chunk(id, ended);
        }
        Ok(())
    }

    /// Whether the believed time is much later than the manifest records.
    fn is_clock_mark_old(&self, manifest: &ChunkManifest) -> bool {
        let mark = self.clock.get().and_then(|clock| clock.mark());
        let recorded = manifest.clock.map_or(0, |mark| mark.time);
        mark.is_some_and(|mark| mark.time.saturating_sub(recorded) > CLOCK_MARK_AGE_MAX)
    }

    /// Frees the preallocated disk space that a chunk does not need. If that fails, the only cost
    /// is the disk space.
    fn trim_chunk(&self, id: u64, ended: ChunkEnd) {
        if let Ok(file) = self.env.files.open(&chunk_path(&self.folder, id), Access::ReadWrite)
            && file.has_other_names().is_ok_and(|it_has| !it_has)
        {
            let _ = file.set_len(ended.file_bytes());
        }
    }

    /// Forgets chunks that the manifest does not name any more.
    /// REQUIRES: the ids ascend.
    fn forget_chunks(&self, empty: &[u64]) {
        self.chunks.retain(|chunk| empty.binary_search(&chunk.id).is_err());
        self.remove_chunks(empty);
    }

    /// Returns a cursor over the events.
    pub fn cursor(self: &Arc<Self>) -> LogCursor {
        LogCursor::new(self)
    }
}

fn set_chunk_end(manifest: &mut ChunkManifest, chunk: &Chunk) {
    let entry = manifest.entry_mut(chunk.id);
    if let (Some(entry), Some(ended)) = (entry, chunk.ended.get()) {
        entry.ended = Some(*ended);
    }
}

#[cfg(test)]
mod tests;
