//! Switch of the WAL to its next segment, a spare or a new one, under the commit lock.

use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_log::{HEADER_BYTES, LogWriter};

use super::{OldSegment, Wal, disk_full};
use crate::fs::filenames;
use crate::version::manifest::with_reserved_segment;
use crate::version::{Edit, LogState, Manifest};

impl Wal {
    /// Switches to a segment into which `payload_bytes` fit: a spare or a new one. On a full disk,
    /// a write that frees space continues in the part of the current segment that is kept for such
    /// writes. An error changes nothing, unless it is fatal for the store.
    #[cold]
    pub(super) fn switch_segment(
        &mut self,
        manifest: &Mutex<Manifest>,
        payload_bytes: usize,
        frees_space: bool,
    ) -> Result<()> {
        match self.begin_segment(manifest, payload_bytes, frees_space) {
            Err(Error::DiskFull { .. })
                if frees_space
                    && !self.fatal_error.is_set()
                    && self.fits_in_reserve(payload_bytes) =>
            {
                Ok(())
            }
            switched => switched,
        }
    }

    fn begin_segment(
        &mut self,
        manifest: &Mutex<Manifest>,
        payload_bytes: usize,
        frees_space: bool,
    ) -> Result<()> {
        let taken = self.take_spare(payload_bytes);
        if taken.map_err(|error| self.fatal_unless_full(error))? {
            return Ok(());
        }
        let fatal_error = Arc::clone(&self.fatal_error);
        let mut create = || self.create_segment(payload_bytes, frees_space);
        let writer = match frees_space {
            true => with_reserved_segment(manifest, &fatal_error, create)?,
            false => create()?,
        };
        let started = self.start_segment(writer, manifest);
        started.map_err(|error| match error.is_out_of_descriptors() {
            true => fatal_error.set_unless_transient(error),
            false => self.fatal_unless_full(error),
        })
    }

    /// Continues in a spare segment. Returns `false`, with nothing done, if the payload fits into
    /// no spare segment. The same holds while older spare segments are about to be dropped, since
    /// recovery would stop at these empty segments. After a failure no append may follow, and the
    /// caller sets the fatal error.
    pub(super) fn take_spare(&mut self, payload_bytes: usize) -> Result<bool> {
        if self.pending_releases > 0 || !self.released_spares.is_empty() {
            return Ok(false);
        }
        if !self.spares.front().is_some_and(|spare| spare.fits(payload_bytes)) {
            return Ok(false);
        }
        self.retire_current()?;
        if let Some(spare) = self.spares.pop_front() {
            self.begin(spare);
        }
        Ok(true)
    }

    /// Ends the current segment and continues in `writer`, a new segment. After a failure no append
    /// may follow, and the caller sets the fatal error. After a lack of file descriptors or disk
    /// space, however, the WAL can be written as before.
    fn start_segment(&mut self, mut writer: LogWriter, manifest: &Mutex<Manifest>) -> Result<()> {
        let path = filenames::segment(&self.folder, writer.log_id());
        let remove_file = |error: &Error| {
            if error.is_out_of_descriptors() || matches!(error, Error::DiskFull { .. }) {
                // No edit names it, and it takes disk space that is needed.
                let _ = self.env.files.remove_file(&path);
            }
        };
        writer.file().sync().inspect_err(remove_file)?;
        self.env.files.sync_dir(&self.folder).inspect_err(remove_file)?;
        // A header that was durable and is lost later is damage, not a torn creation.
        writer.set_durable(HEADER_BYTES);
        {
            let mut manifest = manifest.lock().ignore_poison();
            // Spare segments with lower ids would be between this one and its predecessor. One of
            // them may be under construction: `add_spare` rejects it.
            let skipped = manifest.state().logs.range(self.newest_id + 1..writer.log_id());
            let mut edits: Vec<_> = skipped.map(|(id, _)| Edit::DropLog(*id)).collect();
            edits.push(Edit::Log { id: writer.log_id(), state: LogState::Open });
            if let Some(refused) = manifest.commit_unless_full(&edits)? {
                remove_file(&refused);
                return Err(refused);
            }
        }
        // Each of them got its id before this one.
        let unwanted = std::mem::take(&mut self.released_spares);
        for spare in std::mem::take(&mut self.spares).into_iter().chain(unwanted) {
            self.obsolete.remove(&filenames::segment(&self.folder, spare.log_id()));
        }
        self.stats.made += 1;
        self.stats.awaited += 1;
        if let Err(error) = self.retire_current() {
            // The manifest names it, it is empty, and there is no other.
            self.spares.push_back(writer);
            return Err(error);
        }
        self.begin(writer);
        Ok(())
    }

    /// Continues in the segment of `writer`. REQUIRES: the WAL has no current segment.
    pub(super) fn begin(&mut self, writer: LogWriter) {
        self.bytes_max = self.bytes_max.max(self.live_bytes());
        self.reserve_bytes = disk_full::reserve_bytes(writer.capacity());
        self.newest_id = writer.log_id();
        self.tail.add(Arc::clone(writer.progress()));
        self.stats.is_mapped = Some(writer.is_mapped());
        self.stats.why_unmapped = writer.file().unmapped_reason();
        self.spare_at = writer.capacity() / 4;
        self.task_at = 0;
        self.is_idle = false;
        self.prepared_bytes_max = u64::MAX;
        self.is_task_due = true;
        self.current = Some(writer);
    }

    /// Ends the current segment. After [`Error::DiskFull`] the segment stays current, if the WAL
    /// [is writable](Wal::is_writable).
    pub(super) fn retire_current(&mut self) -> Result<()> {
        let Some(writer) = &mut self.current else { return Ok(()) };
        let sealed = writer.seal().map_err(|error| self.sync_truncation(error))?;
        let Some(writer) = self.current.take() else { return Ok(()) };
        let progress = Arc::clone(writer.progress());
        let reusable_bytes = if writer.is_mapped() { writer.capacity() } else { 0 };
        if self.has_worker {
            self.write_back.end(writer.file(), sealed.len);
        }
        self.old.push(OldSegment {
            id: writer.log_id(),
            last_sequence: self.last_sequence,
            bytes: sealed.len,
            reusable_bytes,
            unrecorded: Some((progress, sealed)),
        });
        self.retired.extend(writer.into_mapping());
        Ok(())
    }
}
