//! [`TombstoneFinder`]: which range tombstone hides a key, asked for one key after the other.

use std::cmp::Ordering;
use std::sync::Arc;

use umbel_base::{FragmentedTombstones, SequenceNumber};

/// Range tombstones with a memory of where the last key stood among them, so that neighbouring
/// keys need no search.
#[derive(Debug)]
pub struct TombstoneFinder {
    /// `None` where there are none.
    tombstones: Option<Arc<FragmentedTombstones>>,
    /// How many fragments start at or before the key asked for last.
    behind: usize,
}

impl TombstoneFinder {
    /// None is remembered yet.
    pub fn new(tombstones: Option<Arc<FragmentedTombstones>>) -> Self {
        let tombstones = tombstones.filter(|tombstones| !tombstones.is_empty());
        TombstoneFinder { tombstones, behind: 0 }
    }

    /// Whether there are none.
    #[inline]
    pub fn are_none(&self) -> bool {
        self.tombstones.is_none()
    }

    /// Whether a tombstone that a reader at `reader` sees hides version `sequence` of `key`.
    #[inline]
    pub fn hides(&mut self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> bool {
        !self.are_none() && self.search(key, sequence, reader)
    }

    fn search(&mut self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> bool {
        let fragments = self.tombstones.as_ref().map_or(&[][..], |all| all.fragments());
        let starts_by = |index: usize| match fragments.get(index) {
            Some(fragment) => fragment.start.as_slice().cmp(key) != Ordering::Greater,
            None => false,
        };
        let remembered =
            (self.behind == 0 || starts_by(self.behind - 1)) && !starts_by(self.behind);
        if !remembered {
            self.behind = fragments.partition_point(|f| f.start.as_slice() <= key);
        }
        let Some(fragment) = self.behind.checked_sub(1).map(|index| &fragments[index]) else {
            return false;
        };
        key < fragment.end.as_slice()
            && fragment.newest_at(reader).is_some_and(|tombstone| tombstone > sequence)
    }
}
