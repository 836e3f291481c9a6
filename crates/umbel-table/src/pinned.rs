//! What of a table stays in memory while it is open, and how much that is.

use umbel_filter::Bloom;

use crate::reader::Table;
use crate::slots::BlockSlots;

impl Table {
    /// Whether there is a filter in memory that can say no.
    pub fn has_filter(&self) -> bool {
        self.filter().is_some()
    }

    /// Bytes of the filter in memory.
    pub fn filter_bytes(&self) -> usize {
        self.filter().map_or(0, Bloom::bytes)
    }

    /// The share of absent keys for which the filter says "maybe" by its design; 1 without one.
    pub fn designed_rate(&self) -> f64 {
        self.filter().map_or(1.0, Bloom::designed_rate)
    }

    /// How many bytes stay in memory while the table is open: index, filter, range tombstones and
    /// slots, but not cached blocks.
    pub fn pinned_bytes(&self) -> usize {
        let key_bytes: usize =
            self.tombstones_given().iter().map(|t| t.start.len() + t.end.len()).sum();
        let fragments: usize = self
            .tombstones()
            .fragments()
            .iter()
            .map(|f| f.start.len() + f.end.len() + 8 * f.sequences.len() + 72)
            .sum();
        let slots = size_of::<BlockSlots>() + self.slots().memory_bytes();
        let filter = self.filter_bytes();
        let index = self.index().memory_bytes() + self.top().memory_bytes();
        size_of::<Table>() + index + filter + slots + key_bytes + fragments
    }
}
