//! [`LogProgress`]: how far a log is written and how far it is durable.
//!
//! The thread that writes the log and the one that syncs it share this without a lock, so that
//! neither waits for the other. A log that holds its records has a lock, which the writing
//! thread takes while no other thread writes to the file or syncs it. A third thread may fill the
//! file with zeros ahead of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::Result;
use umbel_env::File;

use crate::fatal_error::FatalError;
use crate::pending_records::PendingRecords;

/// Place of a log.
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

    /// The same, but records are held.
    pub(crate) fn with_pending(self, held: PendingRecords) -> LogProgress {
        LogProgress { pending: Some(held), ..self }
    }

    /// Whether it is time to [fill](LogProgress::fill_ahead) the file further.
    pub fn wants_fill(&self) -> bool {
        self.pending.as_ref().is_some_and(PendingRecords::wants_fill)
    }

    /// Writes zeros ahead of the records of a log that holds them, where this
    /// [is needed](LogProgress::wants_fill). Another thread does so, so that a caller that
    /// writes records finds space in the file. Otherwise the writer fills it.
    ///
    /// # Errors
    /// A failed write, which means nothing to the records: the same place is filled again later.
    pub fn fill_ahead(&self) -> Result<()> {
        self.pending.as_ref().map_or(Ok(()), |held| held.fill_ahead(&*self.file))
    }

    /// Fills `buffer` with the file's bytes from `offset`, where they are among the newest
    /// held records. Otherwise read them from the file.
    pub fn read_recent(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.pending.as_ref().is_some_and(|held| held.read_recent(buffer, offset))
    }

    /// The log's id.
    pub fn log_id(&self) -> u64 {
        self.log_id
    }

    /// The log's file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The offset after the last record.
    pub fn end(&self) -> u64 {
        // A thread that syncs after this covers the stores that went before.
        self.end.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Everything below this offset can be read from the file.
    #[inline]
    pub fn written(&self) -> u64 {
        match &self.pending {
            Some(held) => held.written(),
            None => self.end(),
        }
    }

    /// Takes a record that stands at `offset`, after the last one.
    pub(crate) fn write_or_defer(&self, record: &[u8], offset: u64) -> Result<()> {
        match &self.pending {
            Some(held) => held.push(record),
            None => self.file.write_all_at(record, offset)?,
        }
        Ok(())
    }

    /// Writes records that are held to the file: all that were appended before the call. They
    /// survive the death of the process then, and can be read.
    ///
    /// # Errors
    /// A failed write, which is final: each later call fails as well. After [`Error::DiskFull`],
    /// where that is the answer of a write, the records are held still, and a later call writes
    /// them.
    ///
    /// [`Error::DiskFull`]: umbel_base::Error::DiskFull
    pub fn write_pending(&self) -> Result<()> {
        let Some(held) = &self.pending else { return Ok(()) };
        held.write_out(&*self.file, &self.fatal_error)
    }

    /// Everything below this offset is durable.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }

    /// Notes the success of a sync that began when [`LogProgress::written`] was `offset` or more:
    /// later records say that everything below it was durable. Lower offsets
    /// than before change nothing.
    /// REQUIRES: it is true. A false mark turns a torn tail into corruption.
    pub fn note_durable(&self, offset: u64) {
        let end = self.end();
        debug_assert!(offset <= end, "only what was written can be durable");
        self.durable.fetch_max(offset.min(end), Ordering::Relaxed);
    }

    /// Makes all appended records durable, and notes it.
    ///
    /// # Errors
    /// As [`LogProgress::write_pending`]. A failed sync is final for every reason, even a full
    /// disk, because the system may have dropped the written bytes.
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
