//! Which keys a store holds, and what becomes of them before it is read: the same for each engine.
//!
//! INVARIANT: of a store that was lived in, every twentieth key is deleted and every tenth has a
//! second value; no key is both. Keys are counted in the order of [`Keys::present`].

use umbel_lab::engine::{Source, Write};
use umbel_lab::keys::Keys;

/// In how many parts the changes come.
pub const PARTS: u64 = 3;
/// Mixed into a name to make its second value.
const SECOND: u64 = 0x5EC0_0D00_0000_0000;
/// A prime above the most keys there can be, so that steps of it reach each of them once.
const STEP: u64 = 1_000_000_007;

/// The keys of a store.
#[derive(Debug, Clone, Copy)]
pub struct Population {
    /// All that were ever put.
    pub keys: Keys,
    /// Whether some were changed and deleted.
    pub lived_in: bool,
}

fn deleted(index: u64) -> bool {
    index % 20 == 7
}

fn changed(index: u64) -> bool {
    index % 10 == 3
}

impl Population {
    /// How many keys are there.
    pub fn live(&self) -> u64 {
        let num = self.keys.num();
        if self.lived_in { num - (num + 12) / 20 } else { num }
    }

    /// The name of a key that is there: this one, or its neighbour where it was deleted.
    #[inline]
    pub fn present(&self, index: u64) -> u64 {
        self.keys.present(self.live_index(index))
    }

    #[inline]
    fn live_index(&self, index: u64) -> u64 {
        if !self.lived_in || !deleted(index) {
            return index;
        }
        if index + 1 < self.keys.num() { index + 1 } else { index - 1 }
    }

    /// Writes the key that [`Population::present`] names, and its present value.
    pub fn entry(&self, index: u64, key: &mut Vec<u8>, value: &mut Vec<u8>) {
        let index = self.live_index(index);
        let name = self.keys.present(index);
        self.keys.key(name, key);
        let second = if self.lived_in && changed(index) { SECOND } else { 0 };
        self.keys.value(name ^ second, value);
    }

    /// The changes of one part, in an order without order.
    pub fn changes(&self, part: u64) -> Changes {
        Changes { keys: self.keys, part, at: 0, key: Vec::new(), value: Vec::new() }
    }
}

/// Overwrites and deletes that make a store look lived in.
#[derive(Debug)]
pub struct Changes {
    keys: Keys,
    part: u64,
    at: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Source for Changes {
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

    use umbel_lab::keys::Shape;

    use super::*;

    #[test]
    fn changes_are_what_entries_say() {
        let keys = Keys::new(Shape::Decimal, 1007, 16, 20).unwrap();
        let population = Population { keys, lived_in: true };
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
