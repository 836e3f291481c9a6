//! [`LogProgress`]: how far a log is written and how far it is durable.
//!
//! The thread that writes the log and the one that syncs it share it without a lock, so that
//! neither waits for the other; of a log that holds its records, with a lock that the writing
//! thread takes while nobody writes to the file or syncs it under it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use umbel_base::{Error, Result};
use umbel_env::File;

/// A buffer of held records that grew beyond this is given back.
const BUFFER_BYTES_KEPT: usize = 1 << 20;
/// A segment is filled with zeros this far ahead, to a multiple of it.
const FILLED_AHEAD: u64 = 512 << 10;

/// Where a log stands.
///
/// INVARIANT: `durable <= written <= end`, and all of them only grow.
#[derive(Debug)]
pub struct LogProgress {
    file: Arc<dyn File>,
    log_id: u64,
    end: AtomicU64,
    durable: AtomicU64,
    held: Option<Held>,
    /// Why nothing is made durable any more.
    failed: OnceLock<String>,
}

/// Records that are not in the file yet.
///
/// Locks are taken in this order: `out`, `records`.
#[derive(Debug)]
struct Held {
    /// Those that nobody writes yet; they follow what `out` has.
    records: Mutex<Vec<u8>>,
    out: Mutex<Out>,
    /// Everything below this offset is in the file.
    written: AtomicU64,
}

/// What is being written to the file.
#[derive(Debug)]
struct Out {
    records: Vec<u8>,
    /// The file has blocks of its own below this offset, and zeros behind the records.
    filled: u64,
    /// Up to where it may be filled.
    fills_to: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogProgress {
    pub(crate) fn new(file: Arc<dyn File>, log_id: u64, end: u64, durable: u64) -> LogProgress {
        let (end, durable) = (AtomicU64::new(end), AtomicU64::new(durable));
        LogProgress { file, log_id, end, durable, held: None, failed: OnceLock::new() }
    }

    /// The same, but records are held, and zeros written ahead of them up to `fills_to`.
    pub(crate) fn holding(self, fills_to: u64) -> LogProgress {
        let out = Out { records: Vec::new(), filled: 0, fills_to };
        let written = AtomicU64::new(self.end());
        let held = Held { records: Mutex::default(), out: Mutex::new(out), written };
        LogProgress { held: Some(held), ..self }
    }

    /// The log's id.
    pub fn log_id(&self) -> u64 {
        self.log_id
    }

    /// The log's file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The offset behind the last record.
    pub fn end(&self) -> u64 {
        // Whoever syncs after this covers the stores that went before.
        self.end.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Everything below this offset can be read from the file.
    #[inline]
    pub fn written(&self) -> u64 {
        match &self.held {
            Some(held) => held.written.load(Ordering::Acquire),
            None => self.end(),
        }
    }

    /// Takes a record that stands at `offset`, behind the last one.
    pub(crate) fn write_or_hold(&self, record: &[u8], offset: u64) -> Result<()> {
        match &self.held {
            Some(held) => lock(&held.records).extend_from_slice(record),
            None => self.file.write_all_at(record, offset)?,
        }
        Ok(())
    }

    /// Writes records that are held to the file: all that were appended before the call. They
    /// survive the death of the process then, and can be read.
    ///
    /// # Errors
    /// A failed write, which is final: each later call fails as well.
    pub fn write_out(&self) -> Result<()> {
        let Some(held) = &self.held else { return Ok(()) };
        let mut out = lock(&held.out);
        self.check_not_failed()?;
        std::mem::swap(&mut out.records, &mut lock(&held.records));
        if out.records.is_empty() {
            return Ok(());
        }
        let offset = held.written.load(Ordering::Relaxed);
        let end = offset + out.records.len() as u64;
        if out.filled < end.min(out.fills_to) {
            out.filled = end.next_multiple_of(FILLED_AHEAD).min(out.fills_to);
            let len = out.filled.max(end) - offset;
            out.records.resize(len as usize, 0);
        }
        self.noting_failure(self.file.write_all_at(&out.records, offset))?;
        held.written.store(end, Ordering::Release);
        out.records.clear();
        if out.records.capacity() > BUFFER_BYTES_KEPT {
            out.records = Vec::new();
        }
        Ok(())
    }

    fn check_not_failed(&self) -> Result<()> {
        match self.failed.get() {
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }

    /// What of a failed attempt reached the disk is not known, and the next one may succeed without
    /// it: the system reports the loss of what it was to write once.
    fn noting_failure(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| {
            // The first reason stays.
            let _ = self.failed.set(error.to_string());
        })
    }

    /// Everything below this offset is durable.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }

    /// Notes that a sync which began when [`LogProgress::written`] was `offset` (or more) has
    /// succeeded: the records from now on say that everything below it was durable. Lower offsets
    /// than before change nothing.
    /// REQUIRES: it is true. A mark that lies turns a torn tail into corruption.
    pub fn note_durable(&self, offset: u64) {
        let end = self.end();
        debug_assert!(offset <= end, "only what was written can be durable");
        self.durable.fetch_max(offset.min(end), Ordering::Relaxed);
    }

    /// Makes what was appended so far durable, and notes it.
    ///
    /// # Errors
    /// A failed write or sync, which is final: each later call fails as well.
    pub fn sync(&self) -> Result<()> {
        self.check_not_failed()?;
        // A record is held for a moment before the end is behind it.
        let end = self.end();
        self.write_out()?;
        self.noting_failure(self.file.sync())?;
        self.note_durable(end);
        Ok(())
    }
}
