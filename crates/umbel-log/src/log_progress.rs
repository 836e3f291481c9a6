//! [`LogProgress`]: how far a log is written and how far it is durable.
//!
//! The thread that writes the log and the one that syncs it share it without a lock, so that
//! neither waits for the other; of a log that holds its records, with a lock that the writing
//! thread takes while nobody writes to the file or syncs it under it. A third may fill the file
//! with zeros ahead of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::Result;
use umbel_env::File;

use crate::failed::Failed;
use crate::held::Held;

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
    failed: Failed,
}

impl LogProgress {
    /// Whether a write or sync failed for good.
    pub fn has_failed(&self) -> bool {
        self.failed.check().is_err()
    }

    pub(crate) fn new(file: Arc<dyn File>, log_id: u64, end: u64, durable: u64) -> LogProgress {
        let (end, durable) = (AtomicU64::new(end), AtomicU64::new(durable));
        LogProgress { file, log_id, end, durable, held: None, failed: Failed::default() }
    }

    /// The same, but records are held.
    pub(crate) fn holding(self, held: Held) -> LogProgress {
        LogProgress { held: Some(held), ..self }
    }

    /// Whether it is time to [fill](LogProgress::fill_ahead) the file further.
    pub fn wants_fill(&self) -> bool {
        self.held.as_ref().is_some_and(Held::wants_fill)
    }

    /// Writes zeros ahead of the records of a log that holds them, where it
    /// [is time](LogProgress::wants_fill) for that: another thread does so that whoever writes
    /// records finds room in the file. Without it he fills it himself.
    ///
    /// # Errors
    /// A failed write, which means nothing to the records: the same place is filled again later.
    pub fn fill_ahead(&self) -> Result<()> {
        self.held.as_ref().map_or(Ok(()), |held| held.fill_ahead(&*self.file))
    }

    /// Fills `buffer` with the file's bytes from `offset` on, where they are among the newest of
    /// records that were held; otherwise they have to be read from the file.
    pub fn read_recent(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.held.as_ref().is_some_and(|held| held.read_recent(buffer, offset))
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
            Some(held) => held.written(),
            None => self.end(),
        }
    }

    /// Takes a record that stands at `offset`, behind the last one.
    pub(crate) fn write_or_hold(&self, record: &[u8], offset: u64) -> Result<()> {
        match &self.held {
            Some(held) => held.hold(record),
            None => self.file.write_all_at(record, offset)?,
        }
        Ok(())
    }

    /// Writes records that are held to the file: all that were appended before the call. They
    /// survive the death of the process then, and can be read.
    ///
    /// # Errors
    /// A failed write, which is final: each later call fails as well. After [`Error::Full`], where
    /// that is the answer of a write, the records are held still, and a later call writes them.
    ///
    /// [`Error::Full`]: umbel_base::Error::Full
    pub fn write_out(&self) -> Result<()> {
        let Some(held) = &self.held else { return Ok(()) };
        held.write_out(&*self.file, &self.failed)
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
    /// As [`LogProgress::write_out`]; a failed sync is final whatever its reason, a full disk too,
    /// because the system may have dropped what was written.
    pub fn sync(&self) -> Result<()> {
        self.failed.check()?;
        // A record is held for a moment before the end is behind it.
        let end = self.end();
        self.write_out()?;
        self.failed.noting(self.file.sync())?;
        self.note_durable(end);
        Ok(())
    }
}
