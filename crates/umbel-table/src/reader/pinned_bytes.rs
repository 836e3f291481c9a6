//! Memory that an open table keeps.

use crate::cache::block_slots::BlockSlots;
use crate::reader::table_reader::Table;

impl Table {
    /// Bytes that stay in memory while the table is open: index, range tombstones and slots, but
    /// neither filters nor cached blocks.
    pub fn pinned_bytes(&self) -> usize {
        let fragments = self.tombstones().memory_bytes();
        let slots = size_of::<BlockSlots>() + self.slots().memory_bytes();
        let index = self.index().memory_bytes() + self.top().memory_bytes();
        size_of::<Table>() + index + slots + fragments
    }
}
