//! Operation of the WAL on a full disk.
//!
//! A segment whose disk space is reserved keeps a little of this space for deletes, which free
//! space. The prepared space after the records can be released without an edit of the manifest.

use umbel_base::{Error, Result};
use umbel_log::{END_RECORD_BYTES, HEADER_BYTES, LogWriter, record_bytes};

use super::{Arc, Ordering, RecyclableSegment, Wal, create, log_options};

/// Bytes of a segment if the disk has no space for a segment of the usual size.
const TINY_SEGMENT_BYTES: u64 = 1 << 20;
/// Bytes of the smallest segment, for batches that free space, if the disk has no space for a
/// segment of `TINY_SEGMENT_BYTES`.
const LEAST_SEGMENT_BYTES: u64 = 16 << 10;
/// Part of a segment that is kept for deletes on a full disk: one part in the first number, at most
/// the second number of bytes.
const RESERVE: (u64, u64) = (16, 256 << 10);
/// Minimum length of a segment that keeps a part for deletes: the part of a shorter one would be
/// too small.
const RESERVING_BYTES: u64 = 64 << 10;

/// Bytes of a segment of length `capacity` that only batches that free space may use.
pub(super) fn reserve_bytes(capacity: u64) -> usize {
    let reserve = (capacity / RESERVE.0).min(RESERVE.1);
    if capacity < RESERVING_BYTES { 0 } else { reserve as usize }
}

impl Wal {
    /// Whether a record with a payload of `payload_bytes` fits into the part of the current segment
    /// that is kept for batches that free space.
    pub(super) fn fits_in_reserve(&self, payload_bytes: usize) -> bool {
        self.current.as_ref().is_some_and(|writer| writer.is_open() && writer.fits(payload_bytes))
    }

    /// Whether the WAL accepts writes. After [`Error::DiskFull`] the WAL accepts writes if the
    /// failed call was undone.
    pub fn is_writable(&self) -> bool {
        !self.is_truncation_lost && self.current.as_ref().is_none_or(LogWriter::is_open)
    }

    /// Sets `error` as the fatal error, unless the disk is full and the WAL can still be written.
    pub fn fatal_unless_full(&self, error: Error) -> Error {
        match error {
            Error::DiskFull { .. } if self.is_writable() => error,
            error => self.fatal_error.set(error),
        }
    }

    /// Creates the file of a segment that fits `payload_bytes`. On a disk too full for the usual
    /// size the segment is smaller, and of the smallest size for a batch that frees space. A
    /// failure leaves the WAL unchanged, so that the caller can free space and retry.
    pub(super) fn create_segment(
        &mut self,
        payload_bytes: usize,
        frees_space: bool,
    ) -> Result<LogWriter> {
        let least = HEADER_BYTES + record_bytes(payload_bytes as u64) + END_RECORD_BYTES;
        // Excluding its reserve.
        let least = least + least / (RESERVE.0 - 1) + RESERVE.0;
        let mut wanted = vec![self.next_bytes(), TINY_SEGMENT_BYTES.min(self.next_bytes())];
        if frees_space {
            wanted.push(LEAST_SEGMENT_BYTES.min(self.next_bytes()));
        }
        let mut wanted: Vec<u64> = wanted.into_iter().map(|bytes| bytes.max(least)).collect();
        wanted.dedup();
        let mut created = self.create_segment_of(wanted.remove(0));
        for bytes in wanted {
            if !matches!(created, Err(Error::DiskFull { .. })) {
                break;
            }
            created = self.create_segment_of(bytes);
        }
        created
    }

    fn create_segment_of(&self, segment_bytes: u64) -> Result<LogWriter> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        create(&self.env, &self.folder, log_options(&self.secret, id, segment_bytes))
    }

    /// After [`Error::DiskFull`], makes the truncation of the partial record durable, so that the
    /// record cannot reappear with zeros as its missing end. Returns the error.
    #[cold]
    pub(super) fn sync_truncation(&mut self, error: Error) -> Error {
        let is_open = self.current.as_ref().is_some_and(LogWriter::is_open);
        if !is_open || !matches!(error, Error::DiskFull { .. }) {
            return error;
        }
        // Older segments first.
        let synced = self.tail.snapshot().1.iter().try_for_each(|segment| segment.sync());
        self.is_truncation_lost |= synced.is_err();
        synced.err().unwrap_or(error)
    }

    /// Frees the space prepared for later records in spare segments, except for their headers. With
    /// `even_current` also ends the current segment and frees the space after its records. The
    /// manifest still names the spare segments. Returns the file of a dropped segment, which the
    /// caller removes, and whether any space was freed. After a failure the caller sets the fatal
    /// error.
    pub fn release_spares(
        &mut self,
        even_current: bool,
    ) -> Result<(Option<RecyclableSegment>, bool)> {
        let reusable = self.reusable.take();
        let mut has_released = reusable.is_some();
        for mut spare in std::mem::take(&mut self.spares) {
            has_released |= spare.release_unused_space().is_ok();
            self.released_spares.push(spare);
        }
        if even_current && self.current.as_ref().is_some_and(LogWriter::is_mapped) {
            self.retire_current()?;
            self.truncate_last();
            has_released = true;
        }
        // No other spare is made before a writer needs one.
        self.spare_at = u64::MAX;
        Ok((reusable, has_released))
    }

    /// Truncates the segment that ended last to the space that its records need; its file is not
    /// reused.
    pub(super) fn truncate_last(&mut self) {
        if let Some(old) = self.old.last_mut()
            && let Some((progress, sealed)) = &old.unrecorded
        {
            self.to_truncate.push((Arc::clone(progress.file()), sealed.len));
            old.reusable_bytes = 0;
        }
    }
}
