//! How segments of the log end.

use umbel_base::Result;

use super::segment::OldSegment;
use super::{Surplus, Wal};
use crate::version::{Edit, LogState};

impl Wal {
    /// Edits that write down where old segments end that are durable by now: from then on any
    /// damage to them is noticed.
    pub fn ends(&self) -> Vec<Edit> {
        let end = |segment: &OldSegment| {
            let (progress, sealed) = segment.unrecorded.as_ref()?;
            let is_durable = progress.durable() >= sealed.len;
            let edit = Edit::Log { id: segment.id, state: LogState::Sealed(*sealed) };
            is_durable.then_some(edit)
        };
        self.old.iter().filter_map(end).collect()
    }

    /// Notes that these [`Wal::ends`] are written down.
    pub fn note_ends(&mut self, edits: &[Edit]) {
        for segment in &mut self.old {
            let is_its = |edit: &Edit| matches!(edit, Edit::Log { id, .. } if *id == segment.id);
            if edits.iter().any(is_its) {
                segment.unrecorded = None;
            }
        }
    }

    /// Ends the current segment for good and cuts off what was reserved behind its end. Answers
    /// with the edits that say where the segments end, and with what is to be removed once these
    /// are durable.
    pub fn close(&mut self) -> Result<(Vec<Edit>, Surplus)> {
        self.retired.clear();
        let mut spares: Vec<_> = std::mem::take(&mut self.spares).into();
        spares.append(&mut self.unwanted);
        let mut edits: Vec<_> = spares.iter().map(|spare| Edit::DropLog(spare.log_id())).collect();
        let surplus = Surplus { spares, reusable: self.reusable.take() };
        for (file, len) in std::mem::take(&mut self.to_cut) {
            file.set_len(len)?;
        }
        // One that was ended since the last sync has its last mark in memory only.
        for segment in &mut self.old {
            if let Some((progress, sealed)) = segment.unrecorded.take() {
                progress.sync()?;
                edits.push(Edit::Log { id: segment.id, state: LogState::Sealed(sealed) });
            }
        }
        let Some(mut writer) = self.current.take() else { return Ok((edits, surplus)) };
        let sealed = writer.seal()?;
        let (id, file) = (writer.log_id(), writer.file());
        // The mapping goes with the writer; only then may the file be cut.
        drop(writer);
        file.set_len(sealed.len)?;
        file.sync()?;
        edits.push(Edit::Log { id, state: LogState::Sealed(sealed) });
        Ok((edits, surplus))
    }
}
