//! [`PendingRecords`]: records of a log on which no caller relies before they are synced, and the
//! writes of these records to the file.
//!
//! The records wait in memory until a caller requests a write of all of them. The file is filled
//! with zeros in advance, so that most syncs write records and no metadata of the file. If the file
//! system permits it, records are written past the page cache, which takes less time than the
//! write-back of pages. The newest records are kept in memory for readers instead.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::{Access, AlignedBuffer, DIRECT_ALIGNMENT, Env, File};

use crate::fatal_error::FatalError;

/// Bytes of a buffer above which its memory is freed after use.
const BUFFER_BYTES_KEPT: usize = 1 << 20;
/// Number of bytes by which a segment is filled with zeros at a time.
const FILL_CHUNK_BYTES: u64 = 512 << 10;
/// Maximum bytes of one write of zeros, since some file systems let only one write at a time into a
/// file.
const ZERO_WRITE_BYTES: usize = 64 << 10;
/// Alignment of writes of held records: that of direct writes, and a page of the page cache on all
/// platforms. The write of a whole page needs no read.
const PAGE_BYTES: u64 = DIRECT_ALIGNMENT as u64;
/// Maximum bytes of one direct write.
const DIRECT_BYTES: usize = 64 << 10;
/// Number of the newest bytes that are kept for readers. Up to twice as many are kept before the
/// oldest are dropped.
const RECENT_BYTES: usize = 512 << 10;

/// Records that are not in the file yet, and the newest records that are in it.
///
/// Locks are taken in this order: `out`, `fill_handle`, `records`, `recent`.
#[derive(Debug)]
pub(crate) struct PendingRecords {
    /// Records that no thread writes yet; they follow the records in `out`.
    records: Mutex<Vec<u8>>,
    output: Mutex<OutputState>,
    recent: Mutex<RecentBytes>,
    /// Offset below which all bytes are in the file.
    written: AtomicU64,
    /// Lock of the thread that writes zeros at `filled_end`. The lock guards the handle for direct
    /// writes, if zeros are written past the page cache.
    fill_handle: Mutex<Option<Arc<dyn File>>>,
    /// Offset below which the file was filled: its blocks are allocated, with zeros after the
    /// records.
    filled_end: AtomicU64,
    /// Offset up to which the file may be filled.
    fill_limit: u64,
}

/// Way in which records are written to the file: directly or through the page cache.
#[derive(Debug, Default)]
struct OutputState {
    records: Vec<u8>,
    /// Writer past the page cache; `None` if the file is written through the page cache.
    direct: Option<DirectWriter>,
}

/// A handle through which pages are written past the page cache.
#[derive(Debug)]
struct DirectWriter {
    file: Arc<dyn File>,
    /// Whole pages to write; between calls, the records of the last, partly filled page.
    pages: AlignedBuffer,
}

/// The newest bytes of records, which are kept for readers.
#[derive(Debug, Default)]
struct RecentBytes {
    start: u64,
    bytes: Vec<u8>,
}

/// Returns the number of bytes of a file that are filled when the file is created.
pub(crate) fn initial_fill_bytes(fills_to: u64) -> u64 {
    FILL_CHUNK_BYTES.min(fills_to)
}

impl PendingRecords {
    /// Creates the state of a file whose `header` was written, with zeros after it up to
    /// [`initial_fill_bytes`]. The file may be filled up to `fills_to`; 0 if filling would be
    /// useless.
    ///
    /// # Errors
    /// Returned if the file cannot be opened twice more.
    pub(crate) fn new(
        env: &Env,
        path: &Path,
        header: &[u8],
        fills_to: u64,
    ) -> Result<PendingRecords> {
        let written = header.len() as u64;
        PendingRecords::after(
            env,
            path,
            (written, header),
            (initial_fill_bytes(fills_to), fills_to),
        )
    }

    /// Creates the state of a file that has records up to `end`, and zeros after them. The file may
    /// be filled up to `fills_to`; 0 if filling would be useless.
    ///
    /// # Errors
    /// Returned if the file cannot be opened twice more, or its last page cannot be read.
    pub(crate) fn resumed(
        env: &Env,
        file: &dyn File,
        end: u64,
        fills_to: u64,
    ) -> Result<PendingRecords> {
        let page = end / PAGE_BYTES * PAGE_BYTES;
        let mut tail = vec![0; (end - page) as usize];
        file.read_exact_at(&mut tail, page)?;
        // The rest of the last page has space and is zero.
        let filled = end.next_multiple_of(PAGE_BYTES).min(fills_to);
        PendingRecords::after(env, file.path(), (end, &tail), (filled, fills_to))
    }

    /// Creates the state of a file that is written up to `written`. `tail` are its bytes before
    /// that, from the beginning of a page on. The file is filled up to the first end, and may be
    /// filled up to the second one.
    fn after(
        env: &Env,
        path: &Path,
        (written, tail): (u64, &[u8]),
        (filled, fills_to): (u64, u64),
    ) -> Result<PendingRecords> {
        let (mut direct, mut filler) = (None, None);
        if fills_to > 0 {
            // A handle that is written directly is no other thread's.
            direct = Some(DirectWriter::new(env, path, tail)?);
            filler = Some(env.files.open(path, Access::ReadWrite)?);
        }
        Ok(PendingRecords {
            records: Mutex::default(),
            output: Mutex::new(OutputState { records: Vec::new(), direct }),
            recent: Mutex::default(),
            written: AtomicU64::new(written),
            fill_handle: Mutex::new(filler),
            filled_end: AtomicU64::new(filled),
            fill_limit: fills_to,
        })
    }

    /// Offset below which all bytes can be read from the file.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Adds a record to those held in memory.
    pub(crate) fn push(&self, record: &[u8]) {
        self.records.lock().ignore_poison().extend_from_slice(record);
    }

    /// Writes all records that were held before the call to the file, unless an earlier write or
    /// sync failed.
    ///
    /// # Errors
    /// A failed write, which is recorded in `failed`; it is then unknown how much is in the file. A
    /// full disk is not recorded: the next call writes the same bytes to the same offset.
    pub(crate) fn write_out(&self, file: &dyn File, failed: &FatalError) -> Result<()> {
        let out = &mut *self.output.lock().ignore_poison();
        failed.check()?;
        // Set before another thread may write: the held state is inconsistent now.
        match self.write_all(out, file) {
            Err(error @ Error::DiskFull { .. }) => {
                // It is unknown how much of the last page was written directly.
                out.direct = None;
                Err(error)
            }
            written => failed.record(written),
        }
    }

    fn write_all(&self, out: &mut OutputState, file: &dyn File) -> Result<()> {
        // Records that found no space before go first.
        match out.records.is_empty() {
            true => std::mem::swap(&mut out.records, &mut self.records.lock().ignore_poison()),
            false => out.records.append(&mut self.records.lock().ignore_poison()),
        }
        if out.records.is_empty() {
            return Ok(());
        }
        let offset = self.written.load(Ordering::Relaxed);
        let records_bytes = out.records.len();
        let end = offset + records_bytes as u64;
        while self.filled() < end.min(self.fill_limit) {
            self.fill(file)?;
        }
        let padded = end.next_multiple_of(PAGE_BYTES);
        let is_direct = match &mut out.direct {
            Some(direct) if padded <= self.filled() => direct.write(&out.records, offset)?,
            _ => false,
        };
        if is_direct {
            self.recent.lock().ignore_poison().add(&out.records, offset);
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
        self.filled_end.load(Ordering::Acquire)
    }

    /// Whether the file must be filled further with zeros.
    pub(crate) fn wants_fill(&self) -> bool {
        let filled = self.filled();
        filled < self.fill_limit && filled < self.written() + FILL_CHUNK_BYTES
    }

    /// Fills the file further with zeros, if needed.
    pub(crate) fn fill_ahead(&self, file: &dyn File) -> Result<()> {
        match self.wants_fill() {
            true => self.fill(file),
            false => Ok(()),
        }
    }

    fn fill(&self, file: &dyn File) -> Result<()> {
        let before = self.filled();
        let mut filler = self.fill_handle.lock().ignore_poison();
        let start = self.filled();
        let end = (start + 1).next_multiple_of(FILL_CHUNK_BYTES).min(self.fill_limit);
        if start > before || start >= end {
            // Another thread has filled it meanwhile.
            return Ok(());
        }
        let mut zeros = AlignedBuffer::new(ZERO_WRITE_BYTES);
        zeros.fill(&[0; ZERO_WRITE_BYTES]);
        for at in (start..end).step_by(ZERO_WRITE_BYTES) {
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
        self.filled_end.store(end, Ordering::Release);
        Ok(())
    }

    /// Fills `buffer` with the bytes of records from `offset` on if they are among the newest ones
    /// kept; otherwise returns `false`.
    pub(crate) fn read_recent(&self, buffer: &mut [u8], offset: u64) -> bool {
        let recent = self.recent.lock().ignore_poison();
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

impl DirectWriter {
    /// Creates the writer of a file whose last, partly filled page has these records.
    fn new(env: &Env, path: &Path, tail: &[u8]) -> Result<DirectWriter> {
        let file = env.files.open(path, Access::ReadWrite)?;
        let mut pages = AlignedBuffer::new(DIRECT_BYTES);
        pages.fill(tail);
        Ok(DirectWriter { file, pages })
    }

    /// Writes records at `offset`, after the earlier ones, past the page cache. Returns `false` if
    /// the file system does not allow it; then it is unknown which of the records are in the file.
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
            // Bytes of the last page, unless it is full.
            let aligned = len / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
            let mut last = [0; DIRECT_ALIGNMENT];
            let last = &mut last[..len - aligned];
            last.copy_from_slice(&self.pages.bytes()[aligned..len]);
            self.pages.clear();
            self.pages.fill(last);
            at += aligned as u64;
        }
        Ok(true)
    }
}

impl RecentBytes {
    fn add(&mut self, records: &[u8], offset: u64) {
        if self.bytes.len() + records.len() > 2 * RECENT_BYTES {
            let dropped = (self.bytes.len() + records.len() - RECENT_BYTES).min(self.bytes.len());
            self.bytes.drain(..dropped);
        }
        self.bytes.extend_from_slice(&records[records.len().saturating_sub(2 * RECENT_BYTES)..]);
        self.start = offset + records.len() as u64 - self.bytes.len() as u64;
    }
}
