//! Ends of WAL segments: seals and close.

use umbel_base::Result;

use super::{ReclaimableSegments, Wal};
use crate::version::{Edit, LogState};
use crate::wal::segment_types::OldSegment;

impl Wal {
    /// Returns the edits that record the ends of old segments that are durable by now. With these
    /// edits any damage of the segments is detected.
    pub fn seal_edits(&self) -> Vec<Edit> {
        let end = |segment: &OldSegment| {
            let (progress, sealed) = segment.unrecorded.as_ref()?;
            let is_durable = progress.durable() >= sealed.len;
            let edit = Edit::Log { id: segment.id, state: LogState::Sealed(*sealed) };
            is_durable.then_some(edit)
        };
        self.old.iter().filter_map(end).collect()
    }

    /// Records that `edits`, the result of [`Wal::seal_edits`], are in the manifest.
    pub fn note_sealed(&mut self, edits: &[Edit]) {
        for segment in &mut self.old {
            let is_its = |edit: &Edit| matches!(edit, Edit::Log { id, .. } if *id == segment.id);
            if edits.iter().any(is_its) {
                segment.unrecorded = None;
            }
        }
    }

    /// Ends the current segment at the close of the store, and frees the space reserved after its
    /// end. Returns the edits that record the ends of segments, and the files to remove after the
    /// edits are durable.
    pub fn close(&mut self) -> Result<(Vec<Edit>, ReclaimableSegments)> {
        self.retired.clear();
        let mut spares: Vec<_> = std::mem::take(&mut self.spares).into();
        spares.append(&mut self.released_spares);
        let mut edits: Vec<_> = spares.iter().map(|spare| Edit::DropLog(spare.log_id())).collect();
        let surplus = ReclaimableSegments { spares, reusable: self.reusable.take() };
        for (file, len) in std::mem::take(&mut self.to_truncate) {
            file.set_len(len)?;
        }
        // A segment that ended since the last sync has its last mark in memory only.
        for segment in &mut self.old {
            if let Some((progress, sealed)) = segment.unrecorded.take() {
                progress.sync()?;
                edits.push(Edit::Log { id: segment.id, state: LogState::Sealed(sealed) });
            }
        }
        let Some(mut writer) = self.current.take() else { return Ok((edits, surplus)) };
        let sealed = writer.seal()?;
        let (id, file) = (writer.log_id(), writer.file());
        // The mapping is dropped with the writer; only then may the file be cut.
        drop(writer);
        file.set_len(sealed.len)?;
        file.sync()?;
        edits.push(Edit::Log { id, state: LogState::Sealed(sealed) });
        Ok((edits, surplus))
    }
}
