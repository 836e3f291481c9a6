//! What of a table stays in memory while it is open, and how much that is.

use crate::reader::Table;
use crate::slots::BlockSlots;

impl Table {
    /// How many bytes stay in memory while the table is open: index, range tombstones and slots,
    /// but neither filters nor cached blocks.
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
        let index = self.index().memory_bytes() + self.top().memory_bytes();
        size_of::<Table>() + index + slots + key_bytes + fragments
    }
}
