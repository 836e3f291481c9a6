//! [`EventLog`]: the chunks on disk, what of them is durable, and [`LogCursor`], which walks the
//! events in them. The chunk that is written belongs to a [`LogEnd`].
//!
//! INVARIANT: positions are never given twice. A chunk's positions are those of its file's bytes,
//! the next chunk's begin behind the room this one was given, and no chunk is written again after
//! the process that wrote it ended.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, KeptFiles, Populator};
use umbel_log::{
    END_RECORD_BYTES, HEADER_BYTES, LogKind, LogOptions, LogProgress, LogWriter, Sealed,
    record_bytes,
};

use crate::chunk::{Chunk, ChunkList};
use crate::chunk_table::{ChunkEntry, ChunkTable, Ended, chunk_folder, chunk_path};
use crate::format::{BETWEEN_RECORDS, Place};
use crate::lock::locked;

mod cursor;
mod history;
mod swap;

pub use cursor::LogCursor;

/// Room of the first chunk; each next one has twice as much, up to what the options say.
const FIRST_CHUNK_BYTES: u64 = 4 << 20;
/// Room of a chunk for what makes room, on a disk without any for a larger one: the larger, or
/// what leaves space for the table of chunks where a segment of the index was given up for it.
const SMALL_CHUNKS_BYTES: [u64; 2] = [64 << 10, 8 << 10];
/// What makes room goes on while the index lacks the events of one chunk, and of others with less
/// room than this.
const SHORT_BYTES: u64 = 1 << 20;
/// The part of a chunk that is kept for what hides events, and the most of it.
const RESERVE: (u64, u64) = (64, 64 << 10);
/// From so many bytes on, pages are given back before they are synced.
const RELEASE_BYTES: u64 = 256 << 10;

/// The event log of a store.
#[derive(Debug)]
pub struct EventLog {
    env: Env,
    folder: PathBuf,
    chunk_bytes: u64,
    /// Whether events are held in memory until they are synced.
    holds: bool,
    /// The chunks as readers see them.
    pub chunks: ChunkList,
    /// The table as it was written last.
    pub table: Mutex<ChunkTable>,
    /// Chunks that were written and not synced to their end, oldest first.
    unsynced: Mutex<Vec<Unsynced>>,
    /// Events below this position are durable.
    durable: AtomicU64,
    /// The chunk that was made ready for when the present one is full.
    next: Mutex<Option<(Arc<Chunk>, LogWriter)>>,
    /// Chunks of which nobody knows whether the table on the disk names them.
    skipped: Mutex<Vec<u64>>,
    /// Held while files of chunks are copied; no other takes the place of one meanwhile.
    pub copying: Mutex<()>,
    /// Why nothing can be written any more.
    pub failed: Arc<OnceLock<String>>,
    /// Files that no table names any more and readers of other processes may know. A version is the
    /// generation of the table that a reader read.
    pub kept: Arc<KeptFiles>,
}

/// A chunk that was written and not synced to its end.
#[derive(Debug)]
struct Unsynced {
    chunk: Arc<Chunk>,
    progress: Arc<LogProgress>,
    /// Its pages, where the file is mapped.
    pages: Option<Arc<dyn Populator>>,
}

impl Unsynced {
    /// Makes it durable up to `end`.
    fn sync(&self, end: u64) -> Result<()> {
        let durable = self.progress.durable();
        if end <= durable {
            return Ok(());
        }
        if end - durable >= RELEASE_BYTES
            && let Some(pages) = &self.pages
        {
            // A page that is mapped costs a call to every processor when it is written back.
            pages.release(durable..end);
        }
        self.progress.sync()
    }
}

impl EventLog {
    /// The log whose table was read; every chunk in it has ended. The shape is the most bytes of a
    /// chunk, and whether nobody relies on an event before it is synced.
    pub fn new(
        env: &Env,
        folder: PathBuf,
        shape: (u64, bool),
        table: ChunkTable,
        kept: Arc<KeptFiles>,
    ) -> EventLog {
        let chunks = table.chunks.iter().map(|entry| Arc::new(Chunk::new(&folder, entry)));
        let chunks = ChunkList::new(env, chunks.collect());
        EventLog::with_chunks(env, folder, shape, (table, chunks), kept)
    }

    /// The log as it is only read. `growing` are the ids of the chunks that a writer may have open:
    /// of them the reader has what stands before the end that `table` says.
    pub fn of_reader(env: &Env, folder: &Path, table: ChunkTable, growing: &[u64]) -> EventLog {
        let chunk = |entry: &ChunkEntry| match growing.contains(&entry.id) {
            true => Arc::new(Chunk::growing(folder, entry)),
            false => Arc::new(Chunk::new(folder, entry)),
        };
        let chunks = ChunkList::of_reader(env, table.chunks.iter().map(chunk).collect());
        let kept = Arc::new(KeptFiles::new(Arc::clone(&env.files), None));
        EventLog::with_chunks(env, folder.to_path_buf(), (0, false), (table, chunks), kept)
    }

    fn with_chunks(
        env: &Env,
        folder: PathBuf,
        (chunk_bytes, holds): (u64, bool),
        (table, chunks): (ChunkTable, ChunkList),
        kept: Arc<KeptFiles>,
    ) -> EventLog {
        EventLog {
            env: env.clone(),
            folder,
            chunk_bytes,
            holds,
            chunks,
            durable: AtomicU64::new(table.next_start),
            table: Mutex::new(table),
            unsynced: Mutex::default(),
            next: Mutex::default(),
            skipped: Mutex::default(),
            copying: Mutex::default(),
            failed: Arc::default(),
            kept,
        }
    }

    /// Bytes of the chunks, as far as they are written.
    pub fn bytes(&self) -> u64 {
        self.chunks.all().iter().map(|chunk| chunk.file_bytes()).sum()
    }

    /// The position behind which the newest events take so many bytes of the log, or a little more.
    /// Positions alone do not tell: chunks that were not filled leave gaps between them.
    pub fn position_before_end(&self, bytes: u64) -> u64 {
        let mut left = bytes;
        for chunk in self.chunks.all().iter().rev() {
            match left.checked_sub(chunk.file_bytes()) {
                None if left == 0 => return chunk.start + chunk.capacity,
                Some(rest) => left = rest,
                // Bytes of a chunk that was written anew are not where its positions say.
                None if chunk.packed.is_some() => return chunk.start,
                None => return chunk.start + chunk.file_bytes() - left,
            }
        }
        0
    }

    /// Events below this position are durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Where the last chunk that has an event begins; 0 where there is none.
    pub fn last_chunk_start(&self) -> u64 {
        let chunks = self.chunks.all();
        let last = chunks.iter().rev().find(|chunk| chunk.last_event().is_some());
        last.map_or(0, |chunk| chunk.start)
    }

    /// Whether the chunks that begin behind `position` are small, but for the oldest of them.
    pub fn is_short_behind(&self, position: u64) -> bool {
        let chunks = self.chunks.all();
        let behind = chunks.iter().skip_while(|chunk| chunk.start <= position);
        behind.skip(1).map(|chunk| chunk.capacity).sum::<u64>() < SHORT_BYTES
    }

    /// The position of the last event of all; `None` where there is none.
    pub fn last_position(&self) -> Option<u64> {
        let chunks = self.chunks.all();
        chunks.iter().rev().find_map(|chunk| Some(chunk.start + chunk.last_event()?))
    }

    /// Makes everything durable that was appended before the call.
    ///
    /// # Errors
    /// A failed sync, which is final: what it was to cover may be lost although a later one
    /// succeeds. [`Error::Full`], where a write found no room, is not: what it was to write is held
    /// still.
    pub fn sync(&self) -> Result<()> {
        self.try_sync().inspect_err(|error| {
            if !self.is_held(error) {
                self.fail(error);
            }
        })
    }

    /// Notes why nothing can be written any more; the first reason stays.
    fn fail(&self, error: &Error) {
        let _ = self.failed.set(error.to_string());
    }

    /// Whether a write found no room, and all chunks can be written once there is some.
    fn is_held(&self, error: &Error) -> bool {
        let has_failed = |written: &Unsynced| written.progress.has_failed();
        matches!(error, Error::Full { .. }) && !locked(&self.unsynced).iter().any(has_failed)
    }

    fn try_sync(&self) -> Result<()> {
        let mut unsynced = locked(&self.unsynced);
        let mut durable = self.durable();
        let mut done = 0;
        for (index, written) in unsynced.iter().enumerate() {
            // Before its end: what ends the chunk is in the file once this says that it ended.
            let has_ended = written.chunk.ended.get().is_some();
            let end = written.progress.end();
            let was_durable = end <= written.progress.durable();
            written.sync(end)?;
            if !has_ended || !was_durable {
                // One that ended and is durable may be written anew, and removed.
                self.check_named(&written.chunk)?;
            }
            durable = durable.max(written.chunk.start + end);
            if !has_ended {
                // The next one may be there already, and have events by now. They are not durable
                // before this one is to its end.
                break;
            }
            if index + 1 < unsynced.len() {
                done = index + 1;
            }
        }
        self.check_kept()?;
        unsynced.drain(..done);
        self.durable.fetch_max(durable, Ordering::Release);
        Ok(())
    }

    /// An error where the directory was removed: what is synced in it goes with this handle.
    fn check_kept(&self) -> Result<()> {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::RemovedDirectorySynced.is_on() {
            return Ok(());
        }
        self.env.files.check_kept(&self.folder)
    }

    /// The same where the file of a chunk was removed or replaced.
    fn check_named(&self, chunk: &Chunk) -> Result<()> {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::RemovedDirectorySynced.is_on() {
            return Ok(());
        }
        self.check_kept()?;
        self.env.files.check_named(&chunk_path(&self.folder, chunk.id))
    }

    /// Makes a chunk ready that has room for `payload_bytes` at least, if none is. What makes room
    /// gets a smaller one where the disk has no room for one of the usual size.
    pub fn prepare(&self, payload_bytes: usize, makes_room: bool) -> Result<()> {
        let mut next = locked(&self.next);
        if next.as_ref().is_some_and(|(_, writer)| writer.fits(payload_bytes)) {
            return Ok(());
        }
        if let Some((chunk, _)) = next.take() {
            // Too small: it stays empty, and its positions are never used.
            let _ = chunk.ended.set(Ended::EMPTY);
        }
        // What has ended is written down as having ended, so it must be durable first.
        let ended: Vec<_> =
            self.chunks.all().iter().filter(|c| c.ended.get().is_some()).cloned().collect();
        self.sync()?;
        let mut table = locked(&self.table);
        let mut changed = table.clone();
        let room = FIRST_CHUNK_BYTES.min(self.chunk_bytes);
        let doubled = table.last().map_or(room, |last| last.capacity.saturating_mul(2));
        let wanted = HEADER_BYTES + record_bytes(payload_bytes as u64) + END_RECORD_BYTES;
        let capacity = doubled.clamp(room, self.chunk_bytes).max(wanted).next_multiple_of(4096);
        for chunk in &ended {
            note_end(&mut changed, chunk);
        }
        let empty = changed.take_empty();
        let mut made = self.create_chunk(changed.next_id, capacity);
        for smaller in SMALL_CHUNKS_BYTES.into_iter().chain([0]) {
            if makes_room && matches!(made, Err(Error::Full { .. })) {
                let capacity = smaller.max(wanted).next_multiple_of(4096);
                made = self.create_chunk(changed.next_id, capacity);
            }
        }
        let mut writer = made?;
        let entry = changed.add(writer.capacity(), self.env.entropy.number()?);
        writer.file().sync()?;
        self.env.files.sync_dir(&chunk_folder(&self.folder))?;
        writer.set_durable(HEADER_BYTES);
        if let Err(error) = self.publish(&mut table, changed) {
            // The table on the disk may name it already or not: the file stays.
            locked(&self.skipped).push(entry.id);
            return Err(error);
        }
        drop(table);
        self.let_go(&empty);
        self.remove_chunks(&std::mem::take(&mut *locked(&self.skipped)));
        let chunk = Arc::new(Chunk::written_by(&self.folder, &entry, writer.progress()));
        self.chunks.add(&chunk);
        *next = Some((chunk, writer));
        Ok(())
    }

    /// Creates the file of a chunk that no table names yet.
    fn create_chunk(&self, id: u64, capacity: u64) -> Result<LogWriter> {
        let path = chunk_path(&self.folder, id);
        if self.env.files.exists(&path)? {
            // An earlier attempt failed; when the store was opened nothing was in it.
            self.env.files.remove_file(&path)?;
        }
        let options =
            LogOptions { kind: LogKind::Events, log_id: id, salt: 0, segment_bytes: capacity };
        match self.holds {
            true => LogWriter::create_held(&self.env, &path, options),
            false => LogWriter::create(&self.env, &path, options),
        }
    }

    /// Puts a changed table in the place of the present one, on the disk first.
    fn publish(&self, table: &mut ChunkTable, mut changed: ChunkTable) -> Result<()> {
        let written = changed.write(&self.env, &self.folder);
        match written {
            Ok(()) => *table = changed,
            // The one on the disk may be either: a reader may have read the changed one. Neither
            // its generation nor ids and positions in it are given again.
            Err(_) => table.skip(&changed),
        }
        written
    }

    /// Removes a file that the table does not name any more, or keeps it while a reader may know
    /// it.
    /// REQUIRES: the table is durable.
    pub fn remove_file(&self, path: &Path) {
        let version = locked(&self.table).generation_before();
        self.kept.sweep();
        self.kept.remove(path, version);
    }

    /// Removes the files of chunks that no table names any more. One that stays costs room and
    /// nothing else.
    fn remove_chunks(&self, ids: &[u64]) {
        ids.iter().for_each(|id| self.remove_file(&chunk_path(&self.folder, *id)));
    }

    fn take_next(&self, payload_bytes: usize, makes_room: bool) -> Result<(Arc<Chunk>, LogWriter)> {
        loop {
            self.prepare(payload_bytes, makes_room)?;
            // Another thread may prepare, but only one appends.
            if let Some((chunk, writer)) = locked(&self.next).take() {
                let (progress, pages) = (Arc::clone(writer.progress()), writer.populator());
                let written = Unsynced { chunk: Arc::clone(&chunk), progress, pages };
                locked(&self.unsynced).push(written);
                return Ok((chunk, writer));
            }
        }
    }

    /// Makes a chunk the next one again that was taken and that nothing was appended to.
    fn put_back(&self, chunk: Arc<Chunk>, writer: LogWriter) {
        locked(&self.unsynced).retain(|written| written.chunk.id != chunk.id);
        *locked(&self.next) = Some((chunk, writer));
    }

    /// Where the chunk stands that is written.
    fn progress(&self) -> Option<Arc<LogProgress>> {
        locked(&self.unsynced).last().map(|written| Arc::clone(&written.progress))
    }

    /// Whether it is time to fill the chunk that is written further with zeros.
    pub fn wants_fill(&self) -> bool {
        self.holds && self.progress().is_some_and(|progress| progress.wants_fill())
    }

    /// Fills the chunk that is written further, where it is time for that.
    pub fn fill_ahead(&self) -> Result<()> {
        self.progress().map_or(Ok(()), |progress| progress.fill_ahead())
    }

    /// Gives back the room of the chunk that was made ready, on a full disk: it stays empty, and
    /// another is made ready when there is room. `false` where there was none.
    pub fn shed(&self) -> bool {
        let Some((chunk, mut writer)) = locked(&self.next).take() else { return false };
        let _ = chunk.ended.set(Ended::EMPTY);
        writer.give_room_back().is_ok()
    }

    /// Whether a chunk is ready for when the present one is full.
    pub fn is_prepared(&self) -> bool {
        locked(&self.next).is_some()
    }

    /// Writes the table with the end of every chunk, all of which are durable, and gives back the
    /// room that was not used.
    ///
    /// REQUIRES: nothing is appended any more.
    pub fn write_ends(&self) -> Result<()> {
        if let Some((chunk, writer)) = locked(&self.next).take() {
            drop(writer);
            let _ = chunk.ended.set(Ended::EMPTY);
        }
        self.sync()?;
        let mut table = locked(&self.table);
        let mut changed = table.clone();
        for chunk in self.chunks.all().iter() {
            note_end(&mut changed, chunk);
        }
        let empty = changed.take_empty();
        if changed == *table {
            return Ok(());
        }
        let newly_ended = changed.chunks.iter().filter_map(|entry| {
            let was_known =
                table.chunks.iter().any(|old| old.id == entry.id && old.ended.is_some());
            entry.ended.filter(|_| !was_known).map(|ended| (entry.id, ended))
        });
        let newly_ended: Vec<(u64, Ended)> = newly_ended.collect();
        self.publish(&mut table, changed)?;
        drop(table);
        self.let_go(&empty);
        for (id, ended) in newly_ended {
            self.cut_to_end(id, ended);
        }
        Ok(())
    }

    /// Gives back the room that a chunk was made with and does not need. What cannot be cut costs
    /// no more than that room.
    fn cut_to_end(&self, id: u64, ended: Ended) {
        if let Ok(file) = self.env.files.open(&chunk_path(&self.folder, id), Access::ReadWrite)
            && file.has_other_names().is_ok_and(|it_has| !it_has)
        {
            let _ = file.set_len(ended.file_bytes());
        }
    }

    /// Forgets chunks that the table does not name any more.
    fn let_go(&self, empty: &[u64]) {
        self.chunks.retain(|chunk| !empty.contains(&chunk.id));
        self.remove_chunks(empty);
    }

    /// A cursor over the events.
    pub fn cursor(self: &Arc<Self>) -> LogCursor {
        LogCursor::new(self)
    }
}

fn note_end(table: &mut ChunkTable, chunk: &Chunk) {
    let entry = table.chunks.iter_mut().find(|entry| entry.id == chunk.id);
    if let (Some(entry), Some(ended)) = (entry, chunk.ended.get()) {
        entry.ended = Some(*ended);
    }
}

/// The end of the log, where the one who appends stands.
#[derive(Debug, Default)]
pub struct LogEnd {
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    chunk: Arc<Chunk>,
    writer: LogWriter,
    last_event: u64,
    /// Whether somebody was asked to make the next chunk ready.
    asked_next: bool,
    /// How it ends, where that is not in its file yet.
    sealed: Option<(u64, Sealed)>,
}

/// Where an append will stand.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    /// The place of its first frame.
    pub place: Place,
    /// The position of the chunk's first byte.
    pub chunk_start: u64,
    /// The offset of the frame before it in the chunk; 0 where there is none.
    pub last_event: u64,
}

impl LogEnd {
    /// How many bytes at the end of the present chunk are kept for what hides events, so that
    /// scavenging can make room on a full disk.
    pub fn reserve_bytes(&self) -> usize {
        let reserve = |active: &Active| (active.writer.capacity() / RESERVE.0).min(RESERVE.1);
        self.active.as_ref().map_or(0, reserve) as usize
    }

    /// Whether an append of so many bytes needs another chunk.
    pub fn is_full(&self, payload_bytes: usize) -> bool {
        let is_full =
            |active: &Active| active.sealed.is_some() || !active.writer.fits(payload_bytes);
        self.active.as_ref().is_none_or(is_full)
    }

    /// Whether it is time to make the next chunk ready; true once for each chunk, when it is more
    /// than half full.
    pub fn wants_next(&mut self) -> bool {
        let Some(active) = &mut self.active else { return false };
        let is_half_full = active.writer.end() > active.writer.capacity() / 2;
        is_half_full && !std::mem::replace(&mut active.asked_next, is_half_full)
    }

    /// Ends the present chunk and goes on in the next. A chunk that cannot be ended is the last:
    /// after a crash nothing would count that came behind it. Where the disk has no room for its
    /// end, that is tried again by the next call.
    pub fn roll(&mut self, log: &EventLog, payload_bytes: usize, makes_room: bool) -> Result<()> {
        // The next one is taken first: a sync that is under way holds the list it goes into, and
        // the end is written beside it.
        let (chunk, writer) = log.take_next(payload_bytes, makes_room)?;
        if let Err(error) = self.end(log) {
            log.put_back(chunk, writer);
            return Err(error);
        }
        self.active =
            Some(Active { chunk, writer, last_event: 0, asked_next: false, sealed: None });
        Ok(())
    }

    /// Ends the present chunk: nothing is appended to it any more.
    ///
    /// # Errors
    /// A failed write, which is final unless it is [`Error::Full`] and can be tried again.
    pub fn end(&mut self, log: &EventLog) -> Result<()> {
        self.try_end().inspect_err(|error| {
            let is_open = |active: &Active| active.sealed.is_some() || active.writer.is_open();
            if !log.is_held(error) || !self.active.as_ref().is_none_or(is_open) {
                log.fail(error);
            }
        })
    }

    fn try_end(&mut self) -> Result<()> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let (end, sealed) = match active.sealed {
            Some(sealed) => sealed,
            None => {
                let end = active.writer.end();
                *active.sealed.insert((end, active.writer.seal()?))
            }
        };
        active.writer.progress().write_out()?;
        let last_event = active.last_event;
        // A chunk that nobody appended to goes away; its end does not matter.
        let _ = active.chunk.ended.set(Ended { end, last_event, sealed: Some(sealed) });
        self.active = None;
        Ok(())
    }

    /// Where the next append will stand.
    /// REQUIRES: it is not full.
    pub fn beginning(&self) -> Option<Beginning> {
        let active = self.active.as_ref()?;
        let offset = active.writer.end() + BETWEEN_RECORDS;
        Some(Beginning {
            place: Place { chunk: active.chunk.id, offset },
            chunk_start: active.chunk.start,
            last_event: active.last_event,
        })
    }

    /// Appends the frames that were made for [`LogEnd::beginning`], the last of which begins at
    /// the offset `last_event`.
    pub fn append(&mut self, position: u64, payload: &[u8], last_event: u64) -> Result<()> {
        let Some(active) = &mut self.active else {
            return Err(Error::invalid("internal: nothing to append to"));
        };
        let appended = active.writer.append(position, &[payload])?;
        active.last_event = last_event;
        active.chunk.grew(appended.end, last_event);
        Ok(())
    }
}

#[cfg(test)]
#[path = "event_log_tests.rs"]
mod tests;
