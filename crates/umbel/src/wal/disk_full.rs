//! How the log gets on with a full disk.
//!
//! A segment whose space is reserved keeps a little of it for deletes, which make room. What lies
//! ready beyond the records can be given back without a word to the manifest.

use umbel_base::{Error, Result};
use umbel_log::{END_RECORD_BYTES, HEADER_BYTES, LogWriter, record_bytes};

use super::{Arc, Ordering, Reusable, Wal, create, log_options};

/// Bytes of a segment where the disk has no room for one of the usual size.
const TINY_SEGMENT_BYTES: u64 = 1 << 20;
/// The same where not even that fits: for what makes room.
const LEAST_SEGMENT_BYTES: u64 = 16 << 10;
/// Of a segment, the part that is kept for deletes on a full disk, and the most of it.
const RESERVE: (u64, u64) = (16, 256 << 10);
/// A shorter segment keeps nothing: it would be too little to be of use.
const RESERVING_BYTES: u64 = 64 << 10;

/// How many bytes of a segment of this length only what makes room is put in.
pub(super) fn reserve_bytes(capacity: u64) -> usize {
    let reserve = (capacity / RESERVE.0).min(RESERVE.1);
    if capacity < RESERVING_BYTES { 0 } else { reserve as usize }
}

impl Wal {
    /// Whether a record with this payload fits into what the current segment keeps for what makes
    /// room.
    pub fn fits_in_reserve(&self, payload_bytes: usize) -> bool {
        self.current.as_ref().is_some_and(|writer| writer.is_open() && writer.fits(payload_bytes))
    }

    /// Whether the log can be written: after [`Error::Full`] everything is as it was then.
    pub fn is_whole(&self) -> bool {
        !self.is_cut_in_vain && self.current.as_ref().is_none_or(LogWriter::is_open)
    }

    /// Creates the file of a segment that `payload_bytes` fit in; on a disk too full for one of the
    /// usual size a smaller one, and for what makes room the smallest one. A failure leaves the log
    /// as it was, so that the caller may try again after making room.
    pub fn create_segment(&mut self, payload_bytes: usize, makes_room: bool) -> Result<LogWriter> {
        let least = HEADER_BYTES + record_bytes(payload_bytes as u64) + END_RECORD_BYTES;
        // Beside its reserve.
        let least = least + least / (RESERVE.0 - 1) + RESERVE.0;
        let mut wanted = vec![self.next_bytes(), TINY_SEGMENT_BYTES.min(self.next_bytes())];
        if makes_room {
            wanted.push(LEAST_SEGMENT_BYTES.min(self.next_bytes()));
        }
        let mut wanted: Vec<u64> = wanted.into_iter().map(|bytes| bytes.max(least)).collect();
        wanted.dedup();
        let mut created = self.create_segment_of(wanted.remove(0));
        for bytes in wanted {
            if !matches!(created, Err(Error::Full { .. })) {
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

    /// After [`Error::Full`], makes durable that what was written of the record is cut off: its
    /// missing end may be zeros, and it must not come back. Answers with the error.
    #[cold]
    pub(super) fn make_cut_durable(&mut self, error: Error) -> Error {
        let is_open = self.current.as_ref().is_some_and(LogWriter::is_open);
        if !is_open || !matches!(error, Error::Full { .. }) {
            return error;
        }
        // Older segments first.
        let synced = self.tail.begin().1.iter().try_for_each(|segment| segment.sync());
        self.is_cut_in_vain |= synced.is_err();
        synced.err().unwrap_or(error)
    }

    /// Gives back what lies ready for records to come: spare segments, which the manifest names,
    /// but for their headers; the file of a dropped one, which the caller removes; and, where
    /// `even_current` says so, what lies behind the records of the current segment, which ends.
    /// Answers with that file and whether anything was given back. After a failure the caller
    /// poisons the store.
    pub fn shed(&mut self, even_current: bool) -> Result<(Option<Reusable>, bool)> {
        let reusable = self.reusable.take();
        let mut has_shed = reusable.is_some();
        for mut spare in std::mem::take(&mut self.spares) {
            has_shed |= spare.give_room_back().is_ok();
            self.unwanted.push(spare);
        }
        if even_current && self.current.as_ref().is_some_and(LogWriter::is_mapped) {
            self.retire_current()?;
            self.cut_last();
            has_shed = true;
        }
        // No other is made ready before a writer needs one.
        self.spare_at = u64::MAX;
        Ok((reusable, has_shed))
    }

    /// Has the segment that ended last take no more room than it needs; it is not used again.
    pub(super) fn cut_last(&mut self) {
        if let Some(old) = self.old.last_mut()
            && let Some((progress, sealed)) = &old.unrecorded
        {
            self.to_cut.push((Arc::clone(progress.file()), sealed.len));
            old.reusable_bytes = 0;
        }
    }
}
