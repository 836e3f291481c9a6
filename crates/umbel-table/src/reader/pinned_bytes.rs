//! Memory that a table pins while it is open.

use crate::cache::block_slots::BlockSlots;
use crate::reader::table_reader::Table;

impl Table {
    /// Number of bytes that stay in memory while the table is open: index, range tombstones and
    /// slots, but neither filters nor cached blocks.
    pub fn pinned_bytes(&self) -> usize {
        let fragments = self.tombstones().memory_bytes();
        let slots = size_of::<BlockSlots>() + self.slots().memory_bytes();
        let index = self.index().memory_bytes() + self.top().memory_bytes();
        size_of::<Table>() + index + slots + fragments
    }
}
