//! [`IdTable`]: positions by hashes of event ids.

/// Slots of a table that something is put into for the first time.
const SLOTS: usize = 1 << 10;
/// A table with more slots gives them back when it is cleared.
const SLOTS_KEPT: usize = 1 << 18;

/// A slot that is empty. No event stands at position 0.
const EMPTY: (u64, u64) = (0, 0);

/// Positions by hashes of event ids. One array of slots, in which those with the same first choice
/// follow each other: to look for what is not there and then to put it there touches one cache line
/// of memory that hardly ever is in a cache.
#[derive(Debug, Default)]
pub struct IdTable {
    /// Hash and position; as many as a power of two, or none.
    slots: Vec<(u64, u64)>,
    count: usize,
}

impl IdTable {
    /// Where the hash is, or would be put. REQUIRES: there are slots, and one is empty.
    #[inline]
    fn slot(&self, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot].1 != 0 && self.slots[slot].0 != hash {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Has the place of a hash fetched from memory.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        umbel_arena::prefetch(&self.slots, hash as usize & self.slots.len().wrapping_sub(1));
    }

    /// The position of a hash.
    #[inline]
    pub fn get(&self, hash: u64) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        Some(self.slots[self.slot(hash)].1).filter(|position| *position != 0)
    }

    /// Gives a hash this position, whether it has one or not. REQUIRES: it is above 0.
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
        let slots = vec![EMPTY; (self.slots.len() * 2).max(SLOTS)];
        let before = std::mem::replace(&mut self.slots, slots);
        for (hash, position) in before.into_iter().filter(|slot| *slot != EMPTY) {
            let slot = self.slot(hash);
            self.slots[slot] = (hash, position);
        }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        match self.slots.len() > SLOTS_KEPT {
            true => self.slots = Vec::new(),
            false => self.slots.fill(EMPTY),
        }
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_is_a_map_also_of_hashes_that_choose_the_same_slots() {
        for spread in [1, SLOTS as u64, 0x9e37_79b9_7f4a_7c15] {
            let (mut table, mut model) = (IdTable::default(), HashMap::new());
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
    fn much_memory_is_given_back() {
        let mut table = IdTable::default();
        (1..=SLOTS_KEPT as u64).for_each(|hash| table.insert(hash, hash));
        table.clear();
        assert!(table.slots.is_empty() && table.get(1).is_none());
        table.insert(1, 5);
        assert_eq!(table.get(1), Some(5));
    }
}
