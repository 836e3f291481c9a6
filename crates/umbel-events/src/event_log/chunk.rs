//! [`Chunk`]: one file of the event log as readers see it, and [`ChunkList`]: all of them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File};
use umbel_log::{HEADER_BYTES, LogProgress, RECORD_HEADER_BYTES};

use crate::chunk_table::{ChunkEntry, Ended, Packed, removed_since, unopened};
use crate::lock::locked;
use crate::packed::{self, Points};

/// How many files of chunks are open for reading at the same time.
const OPEN_FILES: usize = 128;
/// How far marks lie apart at least.
const MARK_BYTES: u64 = 1 << 20;
/// The offset of a chunk's first event.
pub const FIRST_EVENT_AT: u64 = HEADER_BYTES + RECORD_HEADER_BYTES as u64;

/// One file of the event log.
#[derive(Debug)]
pub struct Chunk {
    /// Its id.
    pub id: u64,
    /// The position of its file's first byte.
    pub start: u64,
    /// Positions from `start + capacity` on belong to later chunks.
    pub capacity: u64,
    /// What tells it from that of a copy of the store that went on by itself.
    pub key: u64,
    /// What is known of its file, where it was written anew.
    pub packed: Option<Packed>,
    /// Its file.
    pub path: PathBuf,
    /// The offset behind the last append.
    end: AtomicU64,
    /// The offset of the last event; 0 where there is none.
    last_event: AtomicU64,
    /// How it ended, once it is not written any more.
    pub ended: OnceLock<Ended>,
    /// How far it is written, for as long as this process writes it or has to sync it.
    progress: Weak<LogProgress>,
    file: Mutex<Option<Arc<dyn File>>>,
    /// Whether another chunk has taken its place and its file goes: it stays open as long as
    /// anybody reads it.
    is_retired: AtomicBool,
    /// Where events begin in a file that was written anew.
    points: Mutex<Option<Arc<Points>>>,
    /// Offsets at which events begin, rising. Somebody came to each of them from the one before.
    marks: Mutex<Vec<u64>>,
}

impl Chunk {
    /// A chunk of the store in `folder`.
    pub fn new(folder: &Path, entry: &ChunkEntry) -> Chunk {
        let (end, last_event) = entry.ended.map_or((HEADER_BYTES, 0), |e| (e.end, e.last_event));
        let last_event = entry.packed.map_or(last_event, |packed| packed.last_event);
        Chunk {
            id: entry.id,
            start: entry.start,
            capacity: entry.capacity,
            key: entry.key,
            packed: entry.packed,
            path: entry.path(folder),
            end: AtomicU64::new(end),
            last_event: AtomicU64::new(last_event),
            ended: entry.ended.map(OnceLock::from).unwrap_or_default(),
            progress: Weak::new(),
            file: Mutex::default(),
            is_retired: AtomicBool::new(false),
            points: Mutex::default(),
            marks: Mutex::default(),
        }
    }

    /// The last offset at or before this one of which is known that an event begins there.
    pub fn mark_before(&self, offset: u64) -> u64 {
        let marks = locked(&self.marks);
        let before = marks.partition_point(|mark| *mark <= offset).checked_sub(1);
        before.map_or(FIRST_EVENT_AT, |index| marks[index])
    }

    /// Notes that an event begins at this offset, where it lies far enough behind the last mark.
    ///
    /// REQUIRES: it was come to from a mark or from the first event. Bytes inside an event may
    /// look like one.
    pub fn mark(&self, offset: u64) {
        let mut marks = locked(&self.marks);
        if offset >= marks.last().map_or(FIRST_EVENT_AT, |last| *last) + MARK_BYTES {
            marks.push(offset);
        }
    }

    /// One that is being written.
    pub fn written_by(folder: &Path, entry: &ChunkEntry, progress: &Arc<LogProgress>) -> Chunk {
        Chunk { progress: Arc::downgrade(progress), ..Chunk::new(folder, entry) }
    }

    /// One that a writer of another process may have open, as far as the entry says.
    pub fn growing(folder: &Path, entry: &ChunkEntry) -> Chunk {
        Chunk { ended: OnceLock::new(), ..Chunk::new(folder, entry) }
    }

    /// Which of its files this is.
    pub fn version(&self) -> u64 {
        self.packed.map_or(0, |packed| packed.version)
    }

    /// How long its file is, as far as it is written.
    pub fn file_bytes(&self) -> u64 {
        self.packed.map_or(self.end(), |packed| packed.file_bytes)
    }

    /// The offset in its file at which its first event begins, where it has one.
    pub fn first_offset(&self) -> u64 {
        if self.packed.is_some() { packed::HEADER_BYTES } else { FIRST_EVENT_AT }
    }

    /// The position of its first event. REQUIRES: it has one.
    pub fn first_position(&self) -> u64 {
        self.start + self.packed.map_or(FIRST_EVENT_AT, |packed| packed.first_event)
    }

    /// The offset behind its last append.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The offset up to which the file can be read, for whoever wants the event at `offset`. Events
    /// that are held in memory are written for him.
    ///
    /// # Errors
    /// A failed write.
    pub fn readable(&self, offset: u64) -> Result<u64> {
        let Some(progress) = self.progress.upgrade() else { return Ok(self.end()) };
        if offset >= progress.written() {
            progress.write_out()?;
        }
        Ok(self.end().min(progress.written()))
    }

    /// Fills `buffer` from `offset` on: from memory where that is among what was written last, or
    /// from its file.
    ///
    /// # Errors
    /// A failed read, or a file that ends before.
    pub fn read(&self, file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
        match self.progress.upgrade() {
            Some(progress) if progress.read_recent(buffer, offset) => Ok(()),
            _ => file.read_exact_at(buffer, offset),
        }
    }

    /// How far behind its start the position of its last event is; `None` where it has none.
    pub fn last_event(&self) -> Option<u64> {
        Some(self.last_event.load(Ordering::Acquire)).filter(|offset| *offset > 0)
    }

    /// Notes what was appended.
    pub fn grew(&self, end: u64, last_event: u64) {
        self.last_event.store(last_event, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    /// An error at `offset`, where a frame should begin.
    pub fn no_event_at(&self, offset: u64) -> Error {
        let reason = "the bytes here are not those of the event that was written";
        Error::corruption(&self.path, offset, reason)
    }
}

/// The chunks of a store, by position.
#[derive(Debug)]
pub struct ChunkList {
    env: Env,
    chunks: RwLock<Arc<Vec<Arc<Chunk>>>>,
    open: Mutex<VecDeque<Arc<Chunk>>>,
    /// Whether a writer of another process may remove files.
    is_of_reader: bool,
}

impl ChunkList {
    /// These chunks.
    pub fn new(env: &Env, chunks: Vec<Arc<Chunk>>) -> ChunkList {
        let chunks = RwLock::new(Arc::new(chunks));
        ChunkList { env: env.clone(), chunks, open: Mutex::default(), is_of_reader: false }
    }

    /// These chunks of a store that is only read.
    pub fn of_reader(env: &Env, chunks: Vec<Arc<Chunk>>) -> ChunkList {
        ChunkList { is_of_reader: true, ..ChunkList::new(env, chunks) }
    }

    /// The chunks there are now.
    pub fn all(&self) -> Arc<Vec<Arc<Chunk>>> {
        Arc::clone(&self.chunks.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a chunk behind the others.
    pub fn add(&self, chunk: &Arc<Chunk>) {
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        let mut longer = Vec::with_capacity(chunks.len() + 1);
        longer.extend(chunks.iter().cloned());
        longer.push(Arc::clone(chunk));
        *chunks = Arc::new(longer);
    }

    /// Puts a chunk in the place of the one with the same id.
    pub fn replace(&self, chunk: &Arc<Chunk>) {
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = chunks.iter().map(|old| if old.id == chunk.id { chunk } else { old });
        let replaced: Vec<_> = replaced.cloned().collect();
        *chunks = Arc::new(replaced);
    }

    /// Keeps the file of a chunk, which will be removed, open for those who read it yet, and no
    /// longer.
    ///
    /// REQUIRES: another has taken its place.
    pub fn retire(&self, chunk: &Arc<Chunk>) -> Result<()> {
        chunk.is_retired.store(true, Ordering::SeqCst);
        let file = self.file(chunk)?;
        *locked(&chunk.file) = Some(file);
        locked(&self.open).retain(|open| !Arc::ptr_eq(open, chunk));
        Ok(())
    }

    /// Where events begin in the file of a chunk that was written anew.
    pub fn points(&self, chunk: &Arc<Chunk>) -> Result<Arc<Points>> {
        let held = locked(&chunk.points).clone();
        if let Some(points) = held {
            return Ok(points);
        }
        // Not under the lock: opening a file closes another, and forgets its points.
        let file = self.file(chunk)?;
        let range = (chunk.start, chunk.start + chunk.capacity);
        let points = Arc::new(packed::read_points(&*file, chunk.id, chunk.version(), range)?);
        *locked(&chunk.points) = Some(Arc::clone(&points));
        Ok(points)
    }

    /// Takes chunks out that hold nothing.
    pub fn retain(&self, keep: impl Fn(&Chunk) -> bool) {
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        let kept: Vec<_> = chunks.iter().filter(|chunk| keep(chunk)).cloned().collect();
        *chunks = Arc::new(kept);
    }

    /// The chunk that `position` belongs to.
    pub fn find(&self, position: u64) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let behind = chunks.partition_point(|chunk| chunk.start <= position);
        let chunk = chunks.get(behind.checked_sub(1)?)?;
        (position < chunk.start + chunk.capacity).then(|| Arc::clone(chunk))
    }

    /// How many bytes the events from one position up to another take in the files, about. It stops
    /// counting at `enough`.
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
            // Of one that was written anew, as if what is left lay evenly.
            let share = u128::from(part) * u128::from(chunk.file_bytes());
            bytes += (share / u128::from(chunk.end().max(1))) as u64;
        }
        bytes
    }

    /// The chunk with events that follows this one.
    pub fn after(&self, chunk: &Chunk) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let from = chunks.partition_point(|other| other.start <= chunk.start);
        chunks[from..].iter().find(|chunk| chunk.last_event().is_some()).cloned()
    }

    /// The chunk with events that comes before this one.
    pub fn before(&self, chunk: &Chunk) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let until = chunks.partition_point(|other| other.start < chunk.start);
        chunks[..until].iter().rev().find(|chunk| chunk.last_event().is_some()).cloned()
    }

    /// The file of a chunk, opened where it is not.
    pub fn file(&self, chunk: &Arc<Chunk>) -> Result<Arc<dyn File>> {
        let mut held = locked(&chunk.file);
        if let Some(file) = &*held {
            return Ok(Arc::clone(file));
        }
        let opened = self.env.files.open(&chunk.path, Access::Read);
        let file = opened.map_err(|error| {
            let is_removed = self.is_of_reader && error.is_missing_file();
            let removed = if is_removed { removed_since(&self.env, &chunk.path) } else { None };
            removed.unwrap_or_else(|| unopened(&chunk.path, error))
        })?;
        *held = Some(Arc::clone(&file));
        drop(held);
        let mut open = locked(&self.open);
        if !chunk.is_retired.load(Ordering::SeqCst) {
            open.push_back(Arc::clone(chunk));
        }
        let closed = if open.len() > OPEN_FILES { open.pop_front() } else { None };
        drop(open);
        if let Some(closed) = closed {
            *locked(&closed.points) = None;
            let mut file = locked(&closed.file);
            if !closed.is_retired.load(Ordering::SeqCst) {
                *file = None;
            }
        }
        Ok(file)
    }
}
