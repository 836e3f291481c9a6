//! Filters in front of a store that say of a name whether it was ever put: of a fixed size, or
//! growing with what they hold.
//!
//! As in EventStoreDB's stream existence filter (seed 002), which has a fixed size.

use umbel_filter::{ConcurrentBloom, HashSecret, hash_key};

/// Bits for each key by which a filter is designed.
const BITS_PER_KEY: i32 = 10;
/// How many keys the first part of a growing filter is designed for.
const FIRST_KEYS: u64 = 64 << 10;

/// What is asked before the store.
pub enum Existence {
    /// Nothing: the store is asked.
    None,
    /// One filter; when it is full it says maybe to more and more names.
    Fixed(Box<ConcurrentBloom>),
    /// Filters of which each is designed for twice the keys of the one before, so that the rate
    /// stays what it was while the memory grows with the keys.
    Growing(Vec<ConcurrentBloom>),
}

impl Existence {
    /// A fixed one of about so many bytes.
    pub fn fixed(bytes: u64) -> Existence {
        let keys = bytes * 8 / BITS_PER_KEY as u64;
        Existence::Fixed(Box::new(ConcurrentBloom::new(keys, BITS_PER_KEY)))
    }

    /// A growing one.
    pub fn growing() -> Existence {
        Existence::Growing(vec![ConcurrentBloom::new(FIRST_KEYS, BITS_PER_KEY)])
    }

    /// Whether the name of this hash may have been put.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        match self {
            Existence::None => true,
            Existence::Fixed(filter) => filter.may_contain(hash),
            Existence::Growing(filters) => {
                filters.iter().rev().any(|filter| filter.may_contain(hash))
            }
        }
    }

    /// Takes a name in.
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        match self {
            Existence::None => {}
            Existence::Fixed(filter) => filter.insert_alone(hash),
            Existence::Growing(filters) => {
                let designed = FIRST_KEYS << (filters.len() - 1);
                if filters.last().is_none_or(|filter| filter.keys() >= designed) {
                    filters.push(ConcurrentBloom::new(designed * 2, BITS_PER_KEY));
                }
                if let Some(filter) = filters.last() {
                    filter.insert_alone(hash);
                }
            }
        }
    }

    /// What it takes of memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Existence::None => 0,
            Existence::Fixed(filter) => filter.bytes() as u64,
            Existence::Growing(filters) => filters.iter().map(|f| f.bytes() as u64).sum(),
        }
    }
}

/// What names are hashed with.
pub struct Names(HashSecret);

impl Names {
    /// With a secret that is the same in every run.
    pub fn new() -> Names {
        Names(HashSecret::from_seed(*b"names of streams"))
    }

    /// The hash of a name.
    #[inline]
    pub fn hash(&self, name: &[u8]) -> u64 {
        hash_key(&self.0, name)
    }
}

impl Default for Names {
    fn default() -> Names {
        Names::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_denied_and_a_growing_one_keeps_its_rate() {
        let names = Names::new();
        let name = |number: u64| names.hash(&number.to_le_bytes());
        for (mut filter, most) in [(Existence::growing(), 0.03), (Existence::fixed(16 << 10), 1.0)]
        {
            (0..300_000).for_each(|number| filter.insert(name(number)));
            assert!((0..300_000).all(|number| filter.may_contain(name(number))));
            let passed = (0..10_000).filter(|n| filter.may_contain(name(1 << 40 | n))).count();
            assert!((passed as f64) <= most * 10_000.0, "{passed} of 10000");
        }
    }
}
