//! [`Chunk`]: one file of the event log as readers see it, and [`ChunkList`]: all chunks.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File};
use umbel_log::{HEADER_BYTES, LogProgress, RECORD_HEADER_BYTES};

use crate::event_log::chunk_manifest::{
    ChunkEnd, ChunkEntry, ScavengedFile, open_error, removed_file_error,
};
use crate::event_log::scavenged_chunk::{self, PositionMap};

/// Maximum number of chunk files that are open for reading at the same time.
const OPEN_FILES_MAX: usize = 128;
/// Minimum distance between two known offsets, in bytes.
const OFFSET_SPACING_BYTES: u64 = 1 << 20;
/// Offset of a chunk's first event.
pub const FIRST_EVENT_OFFSET: u64 = HEADER_BYTES + RECORD_HEADER_BYTES as u64;

/// One file of the event log.
#[derive(Debug)]
pub struct Chunk {
    /// Id of the chunk.
    pub id: u64,
    /// Position of the first byte of the chunk's file.
    pub start: u64,
    /// Positions from `start + capacity` on belong to later chunks.
    pub capacity: u64,
    /// Random key. The same chunk in a copy of the store that diverged has another key.
    pub key: u64,
    /// The chunk's current file, if a scavenge rewrote the chunk.
    pub scavenged: Option<ScavengedFile>,
    /// Path of the chunk's file.
    pub path: PathBuf,
    /// Offset in the file after the last append.
    end: AtomicU64,
    /// Offset of the last event; 0 without events.
    last_event: AtomicU64,
    /// End of the chunk, once nothing is appended to it any more.
    pub ended: OnceLock<ChunkEnd>,
    /// Write progress, while this process writes the chunk or has to sync it.
    progress: Weak<LogProgress>,
    file: Mutex<Option<Arc<dyn File>>>,
    /// Whether another chunk replaced this chunk and the file is removed. The file stays open while
    /// readers use it.
    is_retired: AtomicBool,
    /// Offsets of events in a rewritten file.
    position_map: Mutex<Option<Arc<PositionMap>>>,
    /// Offsets of events, ascending. A reader reached each of these offsets by a scan from the one
    /// before it.
    known_offsets: Mutex<Vec<u64>>,
}

impl Chunk {
    /// Creates a chunk of the store in `folder`.
    pub fn new(folder: &Path, entry: &ChunkEntry) -> Chunk {
        let (end, last_event) = entry.ended.map_or((HEADER_BYTES, 0), |e| (e.end, e.last_event));
        let last_event = entry.scavenged.map_or(last_event, |scavenged| scavenged.last_event);
        Chunk {
            id: entry.id,
            start: entry.start,
            capacity: entry.capacity,
            key: entry.key,
            scavenged: entry.scavenged,
            path: entry.path(folder),
            end: AtomicU64::new(end),
            last_event: AtomicU64::new(last_event),
            ended: entry.ended.map(OnceLock::from).unwrap_or_default(),
            progress: Weak::new(),
            file: Mutex::default(),
            is_retired: AtomicBool::new(false),
            position_map: Mutex::default(),
            known_offsets: Mutex::default(),
        }
    }

    /// Last offset, at or before `offset`, at which an event is known to begin.
    pub fn known_offset_before(&self, offset: u64) -> u64 {
        let marks = self.known_offsets.lock().ignore_poison();
        let before = marks.partition_point(|mark| *mark <= offset).checked_sub(1);
        before.map_or(FIRST_EVENT_OFFSET, |index| marks[index])
    }

    /// Records that an event begins at `offset`, if `offset` is far enough after the last known
    /// offset.
    ///
    /// REQUIRES: a scan from a known offset or from the first event reached `offset`. Bytes inside
    /// an event may look like the beginning of one.
    pub fn record_offset(&self, offset: u64) {
        let mut marks = self.known_offsets.lock().ignore_poison();
        if offset >= marks.last().map_or(FIRST_EVENT_OFFSET, |last| *last) + OFFSET_SPACING_BYTES {
            marks.push(offset);
        }
    }

    /// Creates a chunk that is being written.
    pub fn with_progress(folder: &Path, entry: &ChunkEntry, progress: &Arc<LogProgress>) -> Chunk {
        Chunk { progress: Arc::downgrade(progress), ..Chunk::new(folder, entry) }
    }

    /// Creates a chunk from its manifest entry; a writer in another process may have the chunk
    /// open.
    pub fn open_in_other_process(folder: &Path, entry: &ChunkEntry) -> Chunk {
        Chunk { ended: OnceLock::new(), ..Chunk::new(folder, entry) }
    }

    /// Version of the chunk's current file.
    pub fn version(&self) -> u64 {
        self.scavenged.map_or(0, |scavenged| scavenged.version)
    }

    /// Length of the written part of the chunk's file.
    pub fn file_bytes(&self) -> u64 {
        self.scavenged.map_or(self.end(), |scavenged| scavenged.file_bytes)
    }

    /// Offset in the file at which the chunk's first event begins, if the chunk has an event.
    pub fn first_offset(&self) -> u64 {
        if self.scavenged.is_some() { scavenged_chunk::HEADER_BYTES } else { FIRST_EVENT_OFFSET }
    }

    /// Position of the chunk's first event. REQUIRES: the chunk has an event.
    pub fn first_position(&self) -> u64 {
        self.start + self.scavenged.map_or(FIRST_EVENT_OFFSET, |scavenged| scavenged.first_event)
    }

    /// Offset in the file after the last append.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Offset up to which the file can be read by a reader of the event at `offset`. Events that
    /// are only in memory are written to the file first, if the reader needs them.
    ///
    /// # Errors
    /// A failed write.
    pub fn readable_end(&self, offset: u64) -> Result<u64> {
        let Some(progress) = self.progress.upgrade() else { return Ok(self.end()) };
        if offset >= progress.written() {
            progress.write_pending()?;
        }
        Ok(self.end().min(progress.written()))
    }

    /// Fills `buffer` with the bytes from `offset` on: from memory if the last write's buffer has
    /// the bytes, otherwise from the file.
    ///
    /// # Errors
    /// A failed read, or a file that ends before the buffer is full.
    pub fn read(&self, file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
        match self.progress.upgrade() {
            Some(progress) if progress.read_recent(buffer, offset) => Ok(()),
            _ => file.read_exact_at(buffer, offset),
        }
    }

    /// Distance of the chunk's last event from the chunk's start; `None` without events.
    pub fn last_event(&self) -> Option<u64> {
        Some(self.last_event.load(Ordering::Acquire)).filter(|offset| *offset > 0)
    }

    /// Records an append.
    pub fn set_end(&self, end: u64, last_event: u64) {
        self.last_event.store(last_event, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    /// Returns the error for an invalid frame at `offset`.
    pub fn missing_event_error(&self, offset: u64) -> Error {
        let reason = "the bytes here differ from the event that was written";
        Error::corruption(&self.path, offset, reason)
    }
}

/// The chunks of a store, by position.
#[derive(Debug)]
pub struct ChunkList {
    env: Env,
    chunks: RwLock<Arc<Vec<Arc<Chunk>>>>,
    open: Mutex<VecDeque<Arc<Chunk>>>,
    /// Number of chunks that were replaced.
    replacements: AtomicU64,
    /// Whether the store is open for reading only, so that a writer in another process may remove
    /// files.
    is_read_only: bool,
}

impl ChunkList {
    /// Creates a list of these chunks.
    pub fn new(env: &Env, chunks: Vec<Arc<Chunk>>) -> ChunkList {
        let chunks = RwLock::new(Arc::new(chunks));
        let (open, replacements) = (Mutex::default(), AtomicU64::new(0));
        ChunkList { env: env.clone(), chunks, open, replacements, is_read_only: false }
    }

    /// Creates a list of these chunks, of a store that is open for reading only.
    pub fn read_only(env: &Env, chunks: Vec<Arc<Chunk>>) -> ChunkList {
        ChunkList { is_read_only: true, ..ChunkList::new(env, chunks) }
    }

    /// Returns the current chunks.
    pub fn all(&self) -> Arc<Vec<Arc<Chunk>>> {
        Arc::clone(&self.chunks.read().ignore_poison())
    }

    /// Adds a chunk after the others.
    pub fn add(&self, chunk: &Arc<Chunk>) {
        let mut chunks = self.chunks.write().ignore_poison();
        let mut longer = Vec::with_capacity(chunks.len() + 1);
        longer.extend(chunks.iter().cloned());
        longer.push(Arc::clone(chunk));
        *chunks = Arc::new(longer);
    }

    /// Replaces the chunk with the same id.
    pub fn replace(&self, chunk: &Arc<Chunk>) {
        let mut chunks = self.chunks.write().ignore_poison();
        let replaced = chunks.iter().map(|old| if old.id == chunk.id { chunk } else { old });
        let replaced: Vec<_> = replaced.cloned().collect();
        *chunks = Arc::new(replaced);
        self.replacements.fetch_add(1, Ordering::Release);
    }

    /// Number of chunks that were replaced. What a later call of another method returns has these
    /// replacements, and perhaps further ones.
    pub fn replacements(&self) -> u64 {
        self.replacements.load(Ordering::Acquire)
    }

    /// Keeps the file of a chunk, which will be removed, open until its present readers are done.
    ///
    /// REQUIRES: another chunk has replaced it.
    pub fn retire(&self, chunk: &Arc<Chunk>) -> Result<()> {
        chunk.is_retired.store(true, Ordering::SeqCst);
        let file = self.file(chunk)?;
        *chunk.file.lock().ignore_poison() = Some(file);
        self.open.lock().ignore_poison().retain(|open| !Arc::ptr_eq(open, chunk));
        Ok(())
    }

    /// Returns the offsets of events in the file of a rewritten chunk.
    pub fn position_map(&self, chunk: &Arc<Chunk>) -> Result<Arc<PositionMap>> {
        let held = chunk.position_map.lock().ignore_poison().clone();
        if let Some(points) = held {
            return Ok(points);
        }
        // Not under the lock: opening a file closes another, and drops its position map.
        let file = self.file(chunk)?;
        let range = (chunk.start, chunk.start + chunk.capacity);
        let points =
            Arc::new(scavenged_chunk::read_position_map(&*file, chunk.id, chunk.version(), range)?);
        *chunk.position_map.lock().ignore_poison() = Some(Arc::clone(&points));
        Ok(points)
    }

    /// Removes chunks that `keep` rejects. REQUIRES: these chunks hold no events.
    pub fn retain(&self, keep: impl Fn(&Chunk) -> bool) {
        let mut chunks = self.chunks.write().ignore_poison();
        let kept: Vec<_> = chunks.iter().filter(|chunk| keep(chunk)).cloned().collect();
        *chunks = Arc::new(kept);
    }

    /// Returns the chunk that `position` belongs to.
    pub fn find(&self, position: u64) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.read().ignore_poison();
        let next_index = chunks.partition_point(|chunk| chunk.start <= position);
        let chunk = chunks.get(next_index.checked_sub(1)?)?;
        (position < chunk.start + chunk.capacity).then(|| Arc::clone(chunk))
    }

    /// Returns the approximate bytes that the events from one position up to another take in the
    /// files. Stops counting at `enough`.
    pub fn bytes_between(&self, from: u64, through: u64, enough: u64) -> u64 {
        let chunks = self.all();
        let first = chunks.partition_point(|chunk| chunk.start + chunk.capacity <= from);
        let mut bytes = 0;
        for chunk in chunks[first..].iter().take_while(|chunk| chunk.start <= through) {
            if bytes >= enough {
                break;
            }
            let last = through.min(chunk.start + chunk.end());
            let part = last.saturating_sub(from.max(chunk.start));
            // For a rewritten chunk, as if the remaining events were spread evenly.
            let share = u128::from(part) * u128::from(chunk.file_bytes());
            bytes += (share / u128::from(chunk.end().max(1))) as u64;
        }
        bytes
    }

    /// Returns the next chunk with events.
    pub fn after(&self, chunk: &Chunk) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.read().ignore_poison();
        let from = chunks.partition_point(|other| other.start <= chunk.start);
        chunks[from..].iter().find(|chunk| chunk.last_event().is_some()).cloned()
    }

    /// Returns the previous chunk with events.
    pub fn before(&self, chunk: &Chunk) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.read().ignore_poison();
        let until = chunks.partition_point(|other| other.start < chunk.start);
        chunks[..until].iter().rev().find(|chunk| chunk.last_event().is_some()).cloned()
    }

    /// Returns the file of a chunk, and opens it where necessary.
    pub fn file(&self, chunk: &Arc<Chunk>) -> Result<Arc<dyn File>> {
        let mut held = chunk.file.lock().ignore_poison();
        if let Some(file) = &*held {
            return Ok(Arc::clone(file));
        }
        let opened = self.env.files.open(&chunk.path, Access::Read);
        let file = opened.map_err(|error| {
            let is_removed = self.is_read_only && error.is_missing_file();
            let removed =
                if is_removed { removed_file_error(&self.env, &chunk.path) } else { None };
            removed.unwrap_or_else(|| open_error(&chunk.path, error))
        })?;
        *held = Some(Arc::clone(&file));
        drop(held);
        let mut open = self.open.lock().ignore_poison();
        if !chunk.is_retired.load(Ordering::SeqCst) {
            open.push_back(Arc::clone(chunk));
        }
        let closed = if open.len() > OPEN_FILES_MAX { open.pop_front() } else { None };
        drop(open);
        if let Some(closed) = closed {
            *closed.position_map.lock().ignore_poison() = None;
            let mut file = closed.file.lock().ignore_poison();
            if !closed.is_retired.load(Ordering::SeqCst) {
                *file = None;
            }
        }
        Ok(file)
    }
}
