//! [`PositionWindow`]: positions of consecutive events of a stream, read from the index together.

use umbel_base::Result;

use crate::index::Index;

/// Maximum number of revisions that are read together.
const REVISIONS_MAX: u64 = 512;

/// Positions of consecutive events of one stream.
///
/// A read of the revision after the window reads twice as many revisions as the read before it, so
/// a long scan costs few range seeks. Any other read outside of the window reads one revision.
///
/// INVARIANT: the index may have deleted entries since they were read here, but has the same
/// position for every entry that it still has. An entry is deleted only after a scavenge removed
/// its event from the log.
#[derive(Debug, Default)]
pub struct PositionWindow {
    /// First revision that was read.
    first: u64,
    /// Number of revisions that were read; 0 before the first read.
    revisions: u64,
    /// Revision and position of each entry among them, in order.
    entries: Vec<(u64, u64)>,
}

impl PositionWindow {
    /// Returns the position that the index has, or had when the window was read, for this revision
    /// of the stream with this id. `last` is the last revision of the stream.
    ///
    /// REQUIRES: every call has the same `id`; `revision` is at most `last`.
    pub fn position(
        &mut self,
        index: &Index,
        id: u64,
        (revision, last): (u64, u64),
    ) -> Result<Option<u64>> {
        let offset = revision.checked_sub(self.first);
        if offset.is_none_or(|offset| offset >= self.revisions) {
            self.read(index, id, (revision, last))?;
        }
        let found = self.entries.binary_search_by_key(&revision, |(read, _)| *read).ok();
        Ok(found.map(|at| self.entries[at].1))
    }

    /// Reads the entries from `first` on.
    fn read(&mut self, index: &Index, id: u64, (first, last): (u64, u64)) -> Result<()> {
        let continues = self.revisions > 0 && first == self.first + self.revisions;
        let wanted = if continues { (2 * self.revisions).min(REVISIONS_MAX) } else { 1 };
        let mut through = first.saturating_add(wanted - 1).min(last.max(first));
        let mut entries = index.positions(id, (first, through), wanted as usize, false);
        if entries.is_err() && through > first {
            // The error may concern later revisions only, which the caller may not need.
            through = first;
            entries = index.positions(id, (first, first), 1, false);
        }
        self.entries = entries?;
        (self.first, self.revisions) = (first, through - first + 1);
        Ok(())
    }
}
