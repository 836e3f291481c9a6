//! [`LogProgress`]: the offsets up to which a log is written and durable.
//!
//! The thread that writes the log and the thread that syncs it share the progress without a lock,
//! so that neither waits for the other. In a log that holds its records in memory, one thread at a
//! time writes them to the file or syncs it, under a lock. A third thread can fill the file with
//! zeros after the records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::Result;
use umbel_env::File;

use crate::fatal_error::FatalError;
use crate::pending_records::PendingRecords;

/// Progress of a log: the ends of its appended, written and durable records.
///
/// INVARIANT: `durable <= written <= end`, and all of them only grow.
#[derive(Debug)]
pub struct LogProgress {
    file: Arc<dyn File>,
    log_id: u64,
    end: AtomicU64,
    durable: AtomicU64,
    pending: Option<PendingRecords>,
    fatal_error: FatalError,
}

impl LogProgress {
    /// Whether a write or sync failed permanently.
    pub fn has_failed(&self) -> bool {
        self.fatal_error.check().is_err()
    }

    pub(crate) fn new(file: Arc<dyn File>, log_id: u64, end: u64, durable: u64) -> LogProgress {
        let (end, durable) = (AtomicU64::new(end), AtomicU64::new(durable));
        LogProgress {
            file,
            log_id,
            end,
            durable,
            pending: None,
            fatal_error: FatalError::default(),
        }
    }

    /// Returns the progress of a log that holds its records in memory.
    pub(crate) fn with_pending(self, held: PendingRecords) -> LogProgress {
        LogProgress { pending: Some(held), ..self }
    }

    /// Whether the file must be [filled](LogProgress::fill_ahead) further with zeros.
    pub fn wants_fill(&self) -> bool {
        self.pending.as_ref().is_some_and(PendingRecords::wants_fill)
    }

    /// Writes zeros after the records of a log that holds its records in memory, if this [is
    /// needed](LogProgress::wants_fill). A background thread calls it, so that a caller that writes
    /// records finds allocated space in the file. Otherwise the writer fills the file itself.
    ///
    /// # Errors
    /// A failed write, which does not affect the records: the same range is filled again later.
    pub fn fill_ahead(&self) -> Result<()> {
        self.pending.as_ref().map_or(Ok(()), |held| held.fill_ahead(&*self.file))
    }

    /// Fills `buffer` with the log's bytes from `offset` if they are kept in memory as the newest
    /// records. Returns `false` if the caller must read them from the file.
    pub fn read_recent(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.pending.as_ref().is_some_and(|held| held.read_recent(buffer, offset))
    }

    /// Id of the log.
    pub fn log_id(&self) -> u64 {
        self.log_id
    }

    /// File of the log.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Offset after the last record.
    pub fn end(&self) -> u64 {
        // A thread that syncs after this covers the stores that went before.
        self.end.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Offset below which all bytes can be read from the file.
    #[inline]
    pub fn written(&self) -> u64 {
        match &self.pending {
            Some(held) => held.written(),
            None => self.end(),
        }
    }

    /// Writes the record at `offset`, after the last one, to the file, or holds it in memory.
    pub(crate) fn write_or_defer(&self, record: &[u8], offset: u64) -> Result<()> {
        match &self.pending {
            Some(held) => held.push(record),
            None => self.file.write_all_at(record, offset)?,
        }
        Ok(())
    }

    /// Writes all records that are held in memory and were appended before the call to the file.
    /// Afterwards the records survive the death of the process, and can be read.
    ///
    /// # Errors
    /// A failed write, which is final: every later call fails as well. After [`Error::DiskFull`]
    /// from a write, however, the records are still held, and a later call writes them.
    ///
    /// [`Error::DiskFull`]: umbel_base::Error::DiskFull
    pub fn write_pending(&self) -> Result<()> {
        let Some(held) = &self.pending else { return Ok(()) };
        held.write_out(&*self.file, &self.fatal_error)
    }

    /// Offset below which all bytes are durable.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }

    /// Notes that all bytes below `offset` are durable, which later records then say. A lower
    /// offset than before changes nothing.
    /// REQUIRES: a sync succeeded that began when [`LogProgress::written`] was at least `offset`. A
    /// false mark turns a torn tail into corruption.
    pub fn note_durable(&self, offset: u64) {
        let end = self.end();
        debug_assert!(offset <= end, "only what was written can be durable");
        self.durable.fetch_max(offset.min(end), Ordering::Relaxed);
    }

    /// Writes and syncs all appended records, and notes that they are durable.
    ///
    /// # Errors
    /// As [`LogProgress::write_pending`]. A failed sync is always final, even on a full disk,
    /// because the system can have dropped the written bytes.
    pub fn sync(&self) -> Result<()> {
        self.fatal_error.check()?;
        // A record is held for a moment before the end is after it.
        let end = self.end();
        self.write_pending()?;
        self.fatal_error.record(self.file.sync())?;
        self.note_durable(end);
        Ok(())
    }
}
