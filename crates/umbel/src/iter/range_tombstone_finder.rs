//! [`RangeTombstoneFinder`]: finds the range tombstone that hides a key, for keys in sequence.

use std::cmp::Ordering;
use std::sync::Arc;

use umbel_base::{FragmentedTombstones, SequenceNumber};

/// Range tombstones with the position of the last key among them, so that neighbouring keys need no
/// search.
#[derive(Debug)]
pub struct RangeTombstoneFinder {
    /// `None` where there are none.
    tombstones: Option<Arc<FragmentedTombstones>>,
    /// Number of fragments that start at or before the last key.
    started: usize,
}

impl RangeTombstoneFinder {
    /// Starts without a remembered position.
    pub fn new(tombstones: Option<Arc<FragmentedTombstones>>) -> Self {
        let tombstones = tombstones.filter(|tombstones| !tombstones.is_empty());
        RangeTombstoneFinder { tombstones, started: 0 }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_none()
    }

    /// Whether a tombstone that a reader at `reader` sees hides version `sequence` of `key`.
    #[inline]
    pub fn hides(&mut self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> bool {
        !self.is_empty() && self.search(key, sequence, reader)
    }

    fn search(&mut self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> bool {
        let fragments = self.tombstones.as_ref().map_or(&[][..], |all| all.fragments());
        let starts_by = |index: usize| match fragments.get(index) {
            Some(fragment) => fragment.start.as_slice().cmp(key) != Ordering::Greater,
            None => false,
        };
        let remembered =
            (self.started == 0 || starts_by(self.started - 1)) && !starts_by(self.started);
        if !remembered {
            self.started = fragments.partition_point(|f| f.start.as_slice() <= key);
        }
        let Some(fragment) = self.started.checked_sub(1).map(|index| &fragments[index]) else {
            return false;
        };
        key < fragment.end.as_slice()
            && fragment.newest_at(reader).is_some_and(|tombstone| tombstone > sequence)
    }
}
