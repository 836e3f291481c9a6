//! [`RangeTombstoneFinder`]: finds the range tombstone that hides a key, for a sequence of
//! neighbouring keys.

use std::ops::Bound;

use umbel_base::{Result, SequenceNumber};

use crate::iter::range_tombstone_runs::{FragmentId, RangeTombstoneRuns, Stretch};

/// The range tombstones of all sources that a cursor merges. The default methods know no tombstone.
pub trait RangeTombstoneSource {
    /// Whether a tombstone that a reader at `reader` sees hides version `sequence` of `key`.
    fn hides(&self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> Result<bool> {
        let _ = (key, sequence, reader);
        Ok(false)
    }

    /// Returns all tombstones that can overlap the keys within `lower` and `upper`.
    fn tombstone_runs(
        &self,
        lower: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
    ) -> Result<RangeTombstoneRuns> {
        let _ = (lower, upper);
        Ok(RangeTombstoneRuns::default())
    }
}

/// Searches the range tombstones of a source. The first key after a seek is searched in the source.
/// From the second key on the finder remembers the stretch of keys around the last key, so that
/// neighbouring keys need no search.
#[derive(Debug)]
pub struct RangeTombstoneFinder {
    is_empty: bool,
    /// Whether a key was searched since the last seek.
    is_stepping: bool,
    /// The tombstones of the source; `None` before the second key after a seek.
    runs: Option<RangeTombstoneRuns>,
    remembered: Option<RememberedStretch>,
    /// Scratch space for the fragments over a stretch.
    over: Vec<FragmentId>,
}

/// A stretch of keys, and the newest tombstone over the stretch that a reader sees.
#[derive(Debug)]
struct RememberedStretch {
    stretch: Stretch,
    reader: SequenceNumber,
    newest: Option<SequenceNumber>,
}

impl RangeTombstoneFinder {
    /// Creates a finder without a remembered stretch. `is_empty` says that the source has no
    /// tombstones within the bounds.
    pub fn new(is_empty: bool) -> Self {
        let (is_stepping, runs, remembered, over) = (false, None, None, Vec::new());
        RangeTombstoneFinder { is_empty, is_stepping, runs, remembered, over }
    }

    /// Whether the source has no tombstones within the bounds.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Notes a seek: the next key can be far from the last one.
    #[inline]
    pub fn note_seek(&mut self) {
        self.is_stepping = false;
    }

    /// Whether a tombstone that a reader at `reader` sees hides version `sequence` of `key`.
    /// REQUIRES: all calls pass the same source and bounds.
    #[inline]
    pub fn hides(
        &mut self,
        source: &impl RangeTombstoneSource,
        (lower, upper): (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
        (key, sequence): (&[u8], SequenceNumber),
        reader: SequenceNumber,
    ) -> Result<bool> {
        if self.is_empty {
            return Ok(false);
        }
        if let Some(newest) = self.newest_remembered(key, reader) {
            return Ok(newest > Some(sequence));
        }
        if !std::mem::replace(&mut self.is_stepping, true) {
            return source.hides(key, sequence, reader);
        }
        if self.runs.is_none() {
            self.runs = Some(source.tombstone_runs(lower, upper)?);
        }
        Ok(self.search(key, reader) > Some(sequence))
    }

    /// The newest tombstone over a key in the remembered stretch; `None` if the key is outside the
    /// stretch.
    #[inline]
    fn newest_remembered(
        &self,
        key: &[u8],
        reader: SequenceNumber,
    ) -> Option<Option<SequenceNumber>> {
        let (runs, remembered) = (self.runs.as_ref()?, self.remembered.as_ref()?);
        let is_inside = remembered.reader == reader && runs.contains(&remembered.stretch, key);
        is_inside.then_some(remembered.newest)
    }

    fn search(&mut self, key: &[u8], reader: SequenceNumber) -> Option<SequenceNumber> {
        let runs = self.runs.as_ref()?;
        let stretch = runs.stretch_around(key, &mut self.over);
        let newest = self.over.iter().filter_map(|&id| runs.newest_at(id, reader)).max();
        self.remembered = Some(RememberedStretch { stretch, reader, newest });
        newest
    }
}
