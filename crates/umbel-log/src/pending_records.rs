//! [`Held`]: records of a log that nobody relies on before they are synced, and how they get into
//! its file.
//!
//! They wait in memory until somebody asks for all of them to be written. The file is filled with
//! zeros some way ahead, so that most syncs write records and nothing about the file; where the
//! file system allows it, they are written past its page cache, which costs less time than to bring
//! the cache's pages to the device, and the newest are kept for readers instead.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_base::{Error, Result};
use umbel_env::{Access, AlignedBuffer, DIRECT_ALIGNMENT, Env, File};

use crate::failed::Failed;

/// A buffer of held records that grew beyond this is given back.
const BUFFER_BYTES_KEPT: usize = 1 << 20;
/// A segment is filled with zeros in pieces of so many bytes.
const PIECE_BYTES: u64 = 512 << 10;
/// So many zeros at once: a file system may let one write at a time into a file.
const ZEROS_AT_ONCE: usize = 64 << 10;
/// Held records are written up to a multiple of this, which is the page cache's page on the
/// platforms there are, and what direct writes are aligned to: of a page that is written whole
/// nothing has to be read.
const PAGE_BYTES: u64 = DIRECT_ALIGNMENT as u64;
/// So many bytes are written directly at once.
const DIRECT_BYTES: usize = 64 << 10;
/// So many of the newest bytes are kept for readers, and up to twice as many before the oldest go.
const RECENT_BYTES: usize = 512 << 10;

/// Records that are not in the file yet, and the newest of those that are.
///
/// Locks are taken in this order: `out`, `filling`, `records`, `recent`.
#[derive(Debug)]
pub(crate) struct Held {
    /// Those that nobody writes yet; they follow what `out` has.
    records: Mutex<Vec<u8>>,
    out: Mutex<Out>,
    recent: Mutex<Recent>,
    /// Everything below this offset is in the file.
    written: AtomicU64,
    /// Held by whoever writes zeros at `filled`, with the handle for that, where they are written
    /// past the page cache.
    filling: Mutex<Option<Arc<dyn File>>>,
    /// The file has blocks of its own below this offset, and zeros behind the records.
    filled: AtomicU64,
    /// Up to where it may be filled.
    fills_to: u64,
}

/// How records are written.
#[derive(Debug, Default)]
struct Out {
    records: Vec<u8>,
    /// How they are written past the page cache; `None` where they are not.
    direct: Option<Direct>,
}

/// A handle through which pages are written past the page cache.
#[derive(Debug)]
struct Direct {
    file: Arc<dyn File>,
    /// Whole pages on their way. In between: what the last one has of records.
    pages: AlignedBuffer,
}

/// The newest bytes of records.
#[derive(Debug, Default)]
struct Recent {
    start: u64,
    bytes: Vec<u8>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many bytes of a file are filled when it is made.
pub(crate) fn filled_first(fills_to: u64) -> u64 {
    PIECE_BYTES.min(fills_to)
}

impl Held {
    /// Of a file whose `header` was written with zeros behind it up to [`filled_first`], and which
    /// may be filled up to `fills_to`: 0 where that would be of no use.
    ///
    /// # Errors
    /// Where the file cannot be opened twice more.
    pub(crate) fn new(env: &Env, path: &Path, header: &[u8], fills_to: u64) -> Result<Held> {
        let (mut direct, mut filler) = (None, None);
        if fills_to > 0 {
            // A handle that is written directly is nobody else's.
            direct = Some(Direct::new(env, path, header)?);
            filler = Some(env.files.open(path, Access::ReadWrite)?);
        }
        Ok(Held {
            records: Mutex::default(),
            out: Mutex::new(Out { records: Vec::new(), direct }),
            recent: Mutex::default(),
            written: AtomicU64::new(header.len() as u64),
            filling: Mutex::new(filler),
            filled: AtomicU64::new(filled_first(fills_to)),
            fills_to,
        })
    }

    /// Everything below this offset can be read from the file.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Holds a record.
    pub(crate) fn hold(&self, record: &[u8]) {
        lock(&self.records).extend_from_slice(record);
    }

    /// Writes all that was held before the call, unless something `failed` before.
    ///
    /// # Errors
    /// What failed, which is noted; how much is in the file is not known then. A disk without room
    /// is not noted: the same bytes are written to the same place by the next call.
    pub(crate) fn write_out(&self, file: &dyn File, failed: &Failed) -> Result<()> {
        let out = &mut *lock(&self.out);
        failed.check()?;
        // Noted before anybody else may write: what is held is not in order any more.
        match self.write_all(out, file) {
            Err(error @ Error::Full { .. }) => {
                // What of the last page was written directly is not known.
                out.direct = None;
                Err(error)
            }
            written => failed.noting(written),
        }
    }

    fn write_all(&self, out: &mut Out, file: &dyn File) -> Result<()> {
        // What found no room before goes first.
        match out.records.is_empty() {
            true => std::mem::swap(&mut out.records, &mut lock(&self.records)),
            false => out.records.append(&mut lock(&self.records)),
        }
        if out.records.is_empty() {
            return Ok(());
        }
        let offset = self.written.load(Ordering::Relaxed);
        let records_bytes = out.records.len();
        let end = offset + records_bytes as u64;
        while self.filled() < end.min(self.fills_to) {
            self.fill(file)?;
        }
        let padded = end.next_multiple_of(PAGE_BYTES);
        let is_direct = match &mut out.direct {
            Some(direct) if padded <= self.filled() => direct.write(&out.records, offset)?,
            _ => false,
        };
        if is_direct {
            lock(&self.recent).add(&out.records, offset);
        } else {
            out.direct = None;
            let len = padded.min(self.filled()).max(end) - offset;
            out.records.resize(len as usize, 0);
            let written = file.write_all_at(&out.records, offset);
            out.records.truncate(records_bytes);
            written?;
        }
        self.written.store(end, Ordering::Release);
        out.records.clear();
        if out.records.capacity() > BUFFER_BYTES_KEPT {
            out.records = Vec::new();
        }
        Ok(())
    }

    fn filled(&self) -> u64 {
        self.filled.load(Ordering::Acquire)
    }

    /// Whether it is time to fill the file further.
    pub(crate) fn wants_fill(&self) -> bool {
        let filled = self.filled();
        filled < self.fills_to && filled < self.written() + PIECE_BYTES
    }

    /// Writes the next piece of zeros, where it is time for that.
    pub(crate) fn fill_ahead(&self, file: &dyn File) -> Result<()> {
        match self.wants_fill() {
            true => self.fill(file),
            false => Ok(()),
        }
    }

    fn fill(&self, file: &dyn File) -> Result<()> {
        let before = self.filled();
        let mut filler = lock(&self.filling);
        let start = self.filled();
        let end = (start + 1).next_multiple_of(PIECE_BYTES).min(self.fills_to);
        if start > before || start >= end {
            // Somebody else has filled it meanwhile.
            return Ok(());
        }
        let mut zeros = AlignedBuffer::new(ZEROS_AT_ONCE);
        zeros.fill(&[0; ZEROS_AT_ONCE]);
        for at in (start..end).step_by(ZEROS_AT_ONCE) {
            let some = &zeros.bytes()[..zeros.len().min((end - at) as usize)];
            if let Some(direct) = &*filler
                && direct.write_direct(some, at)?
            {
                continue;
            }
            *filler = None;
            file.write_all_at(some, at)?;
        }
        if filler.is_none() {
            file.write_back(start..end);
        }
        self.filled.store(end, Ordering::Release);
        Ok(())
    }

    /// Fills `buffer` with the bytes of records from `offset` on, where they are among the newest.
    pub(crate) fn read_recent(&self, buffer: &mut [u8], offset: u64) -> bool {
        let recent = lock(&self.recent);
        let found = offset.checked_sub(recent.start).and_then(|start| {
            let start = start as usize;
            recent.bytes.get(start..start.checked_add(buffer.len())?)
        });
        match found {
            Some(found) => buffer.copy_from_slice(found),
            None => return false,
        }
        true
    }
}

impl Direct {
    fn new(env: &Env, path: &Path, header: &[u8]) -> Result<Direct> {
        let file = env.files.open(path, Access::ReadWrite)?;
        let mut pages = AlignedBuffer::new(DIRECT_BYTES);
        pages.fill(header);
        Ok(Direct { file, pages })
    }

    /// Writes records that stand at `offset`, behind those before. `false` where the file system
    /// does not allow it: then some of them may be in the file or not.
    fn write(&mut self, mut records: &[u8], offset: u64) -> Result<bool> {
        let mut at = offset - self.pages.len() as u64;
        debug_assert!(at.is_multiple_of(PAGE_BYTES), "pages begin where records of them do");
        while !records.is_empty() {
            let taken = self.pages.fill(records);
            records = &records[taken..];
            let len = self.pages.len();
            self.pages.pad();
            if !self.file.write_direct(self.pages.bytes(), at)? {
                return Ok(false);
            }
            // What the last page has, unless it is full.
            let whole = len / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
            let mut last = [0; DIRECT_ALIGNMENT];
            let last = &mut last[..len - whole];
            last.copy_from_slice(&self.pages.bytes()[whole..len]);
            self.pages.clear();
            self.pages.fill(last);
            at += whole as u64;
        }
        Ok(true)
    }
}

impl Recent {
    fn add(&mut self, records: &[u8], offset: u64) {
        if self.bytes.len() + records.len() > 2 * RECENT_BYTES {
            let gone = (self.bytes.len() + records.len() - RECENT_BYTES).min(self.bytes.len());
            self.bytes.drain(..gone);
        }
        self.bytes.extend_from_slice(&records[records.len().saturating_sub(2 * RECENT_BYTES)..]);
        self.start = offset + records.len() as u64 - self.bytes.len() as u64;
    }
}
