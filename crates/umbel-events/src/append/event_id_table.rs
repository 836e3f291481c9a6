//! [`EventIdTable`]: positions by hashes of event ids.

/// Slots of a table at its first insertion.
const INITIAL_SLOTS: usize = 1 << 10;
/// A table with more slots than this frees them when it is cleared.
const RETAINED_SLOTS_MAX: usize = 1 << 18;

/// An empty slot. No event has position 0.
const EMPTY_SLOT: (u64, u64) = (0, 0);

/// Positions by hashes of event ids. Hash table with one array of slots and linear probing. A
/// lookup of an absent id and the insertion of the id touch one cache line, which is hardly ever in
/// the processor's cache.
#[derive(Debug, Default)]
pub struct EventIdTable {
    /// Hash and position; the length is a power of two or 0.
    slots: Vec<(u64, u64)>,
    count: usize,
}

impl EventIdTable {
    /// Slot of the hash, or the empty slot for it. REQUIRES: the table has an empty slot.
    #[inline]
    fn slot(&self, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot].1 != 0 && self.slots[slot].0 != hash {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Prefetches the slot of a hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        umbel_arena::prefetch(&self.slots, hash as usize & self.slots.len().wrapping_sub(1));
    }

    /// Returns the position of a hash.
    #[inline]
    pub fn get(&self, hash: u64) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        Some(self.slots[self.slot(hash)].1).filter(|position| *position != 0)
    }

    /// Sets the position of a hash, and replaces an earlier position. REQUIRES: the position is
    /// above 0.
    #[inline]
    pub fn insert(&mut self, hash: u64, position: u64) {
        if self.count >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        let slot = self.slot(hash);
        self.count += usize::from(self.slots[slot].1 == 0);
        self.slots[slot] = (hash, position);
    }

    fn grow(&mut self) {
        let slots = vec![EMPTY_SLOT; (self.slots.len() * 2).max(INITIAL_SLOTS)];
        let before = std::mem::replace(&mut self.slots, slots);
        for (hash, position) in before.into_iter().filter(|slot| *slot != EMPTY_SLOT) {
            let slot = self.slot(hash);
            self.slots[slot] = (hash, position);
        }
    }

    /// Removes all positions.
    pub fn clear(&mut self) {
        match self.slots.len() > RETAINED_SLOTS_MAX {
            true => self.slots = Vec::new(),
            false => self.slots.fill(EMPTY_SLOT),
        }
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn table_matches_a_map_for_colliding_hashes() {
        for spread in [1, INITIAL_SLOTS as u64, 0x9e37_79b9_7f4a_7c15] {
            let (mut table, mut model) = (EventIdTable::default(), HashMap::new());
            assert_eq!(table.get(0), None);
            for round in 1..=3u64 {
                for number in 0..5000u64 {
                    let hash = (number % 3000).wrapping_mul(spread);
                    table.insert(hash, round * 10_000 + number);
                    model.insert(hash, round * 10_000 + number);
                }
                assert_eq!(table.count, model.len());
                for hash in (0..4000u64).map(|number| number.wrapping_mul(spread)) {
                    assert_eq!(table.get(hash), model.get(&hash).copied());
                }
            }
            table.clear();
            assert!((0..4000u64).all(|number| table.get(number.wrapping_mul(spread)).is_none()));
            assert!(!table.slots.is_empty());
        }
    }

    #[test]
    fn large_table_frees_its_memory() {
        let mut table = EventIdTable::default();
        (1..=RETAINED_SLOTS_MAX as u64).for_each(|hash| table.insert(hash, hash));
        table.clear();
        assert!(table.slots.is_empty() && table.get(1).is_none());
        table.insert(1, 5);
        assert_eq!(table.get(1), Some(5));
    }
}
