//! Keys of a store, and their changes before the reads: the same for each engine.
//!
//! INVARIANT: of an aged store, every twentieth key is deleted and every tenth has a second value;
//! no key is both deleted and overwritten. Keys are counted in the order of [`KeySet::present`].

use umbel_keygen::keys::KeySet;
use umbel_lab::engine::{Write, WriteSource};

/// Number of parts of the changes.
pub const PARTS: u64 = 3;
/// Mask that turns the name of a key into the name of its second value.
const SECOND: u64 = 0x5EC0_0D00_0000_0000;
/// Prime above the largest number of keys, so that steps of this size reach each key once.
const STEP: u64 = 1_000_000_007;

/// Keys of a store.
#[derive(Debug, Clone, Copy)]
pub struct Population {
    /// All keys that were ever put.
    pub keys: KeySet,
    /// Whether some keys were overwritten and deleted.
    pub aged: bool,
}

fn deleted(index: u64) -> bool {
    index % 20 == 7
}

fn changed(index: u64) -> bool {
    index % 10 == 3
}

impl Population {
    /// Returns the number of present keys.
    pub fn live(&self) -> u64 {
        let num = self.keys.num();
        if self.aged { num - (num + 12) / 20 } else { num }
    }

    /// Returns the name of a present key: this key, or its neighbor if this key was deleted.
    #[inline]
    pub fn present(&self, index: u64) -> u64 {
        self.keys.present(self.live_index(index))
    }

    #[inline]
    fn live_index(&self, index: u64) -> u64 {
        if !self.aged || !deleted(index) {
            return index;
        }
        if index + 1 < self.keys.num() { index + 1 } else { index - 1 }
    }

    /// Writes the key that [`Population::present`] names, and its present value.
    pub fn entry(&self, index: u64, key: &mut Vec<u8>, value: &mut Vec<u8>) {
        let index = self.live_index(index);
        let name = self.keys.present(index);
        self.keys.key(name, key);
        let second = if self.aged && changed(index) { SECOND } else { 0 };
        self.keys.value(name ^ second, value);
    }

    /// Returns the changes of one part, in random order.
    pub fn changes(&self, part: u64) -> AgingWrites {
        AgingWrites { keys: self.keys, part, at: 0, key: Vec::new(), value: Vec::new() }
    }
}

/// Source of overwrites and deletes that age a store.
#[derive(Debug)]
pub struct AgingWrites {
    keys: KeySet,
    part: u64,
    at: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl WriteSource for AgingWrites {
    fn next(&mut self) -> Option<Write<'_>> {
        while self.at < self.keys.num() {
            let index = self.at * STEP % self.keys.num();
            self.at += 1;
            if (index / 20) % PARTS != self.part || !(deleted(index) || changed(index)) {
                continue;
            }
            let name = self.keys.present(index);
            self.keys.key(name, &mut self.key);
            self.keys.value(name ^ SECOND, &mut self.value);
            return Some((&self.key, (!deleted(index)).then_some(&self.value)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use umbel_keygen::keys::KeyShape;

    use super::*;

    #[test]
    fn changes_match_entries() {
        let keys = KeySet::new(KeyShape::Decimal, 1007, 16, 20).unwrap();
        let population = Population { keys, aged: true };
        let mut model = BTreeMap::new();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for index in 0..1007 {
            keys.key(keys.present(index), &mut key);
            keys.value(keys.present(index), &mut value);
            model.insert(key.clone(), value.clone());
        }
        let before = model.clone();
        for part in 0..PARTS {
            let mut changes = population.changes(part);
            while let Some((key, value)) = changes.next() {
                match value {
                    Some(value) => model.insert(key.to_vec(), value.to_vec()),
                    None => model.remove(key),
                };
            }
        }
        assert_eq!(model.len() as u64, population.live());
        let same = before.iter().filter(|(key, old)| model.get(*key) == Some(old)).count();
        assert_eq!(same, 1007 - 101 - 50);
        for index in 0..1007 {
            population.entry(index, &mut key, &mut value);
            assert_eq!(model.get(&key), Some(&value), "{index}");
            let mut named = Vec::new();
            keys.key(population.present(index), &mut named);
            assert_eq!(named, key);
        }
    }
}
