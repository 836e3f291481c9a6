//! Keys and values, computed from numbers when they are needed: a table of keys would cause cache
//! misses that distort the measurement.
//!
//! INVARIANT: a key's *name* is a number, and keys are in the order of their names. The names of
//! present and absent keys are disjoint and interleaved.

use std::fmt;

/// Shape of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyShape {
    /// Bytes that look random.
    Random,
    /// Decimal numbers with leading zeros; every second number is a present key.
    Decimal,
    /// Paths of files, a thousand to a folder.
    Path,
    /// URLs of pages: some hosts, each with sections and numbered pages.
    Url,
    /// Names of streams: a category and a number, `customer-0000001234`, as event stores use them.
    CategoryId,
}

/// The hosts of [`KeyShape::Url`], ascending.
const HOSTS: [&str; 4] =
    ["docs.example.org", "en.example.com", "shop.example.com", "www.example.net"];
/// The categories of [`KeyShape::CategoryId`], ascending.
const CATEGORIES: [&str; 5] = ["account", "basket", "customer", "order", "shipment"];

impl KeyShape {
    /// Returns the shape with this name.
    pub fn parse(name: &str) -> Option<KeyShape> {
        match name {
            "random" => Some(KeyShape::Random),
            "decimal" => Some(KeyShape::Decimal),
            "path" => Some(KeyShape::Path),
            "url" => Some(KeyShape::Url),
            "category-id" => Some(KeyShape::CategoryId),
            _ => None,
        }
    }

    /// Every shape.
    pub const ALL: [KeyShape; 5] =
        [KeyShape::Random, KeyShape::Decimal, KeyShape::Path, KeyShape::Url, KeyShape::CategoryId];
}

impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyShape::Random => "random",
            KeyShape::Decimal => "decimal",
            KeyShape::Path => "path",
            KeyShape::Url => "url",
            KeyShape::CategoryId => "category-id",
        })
    }
}

/// The keys of a run.
#[derive(Debug, Clone, Copy)]
pub struct KeySet {
    shape: KeyShape,
    key_bytes: usize,
    value_bytes: usize,
    num: u64,
}

/// First number of the absent keys among random names.
const ABSENT: u64 = 1 << 48;

impl KeySet {
    /// Creates a set of `num` keys of this shape.
    ///
    /// # Errors
    /// A sentence, if there are fewer keys of that length.
    pub fn new(
        shape: KeyShape,
        num: u64,
        key_bytes: usize,
        value_bytes: usize,
    ) -> Result<KeySet, String> {
        let digits = (2 * num).to_string().len();
        let least = match shape {
            KeyShape::Random => 8,
            KeyShape::Decimal => digits,
            KeyShape::Path | KeyShape::Url | KeyShape::CategoryId => 0,
        };
        if key_bytes < least || key_bytes > 511 {
            return Err(format!("--key is {key_bytes}, but must be {least} to 511 for {num} keys"));
        }
        Ok(KeySet { shape, key_bytes, value_bytes, num })
    }

    /// Number of keys.
    pub fn num(&self) -> u64 {
        self.num
    }

    /// Returns the name of a present key.
    #[inline]
    pub fn present(&self, index: u64) -> u64 {
        match self.shape {
            KeyShape::Random => mix(index),
            _ => 2 * index,
        }
    }

    /// Returns the name of an absent key.
    #[inline]
    pub fn absent(&self, index: u64) -> u64 {
        match self.shape {
            KeyShape::Random => mix(ABSENT + index),
            _ => 2 * index + 1,
        }
    }

    /// Returns the name of a key that was never written, for further writes. Among ordered keys it
    /// is after all other keys, among random keys anywhere.
    #[inline]
    pub fn new_name(&self, index: u64) -> u64 {
        match self.shape {
            KeyShape::Random => mix(2 * ABSENT + index),
            _ => 2 * (self.num + index),
        }
    }

    /// Writes the key of a name.
    #[inline]
    pub fn key(&self, name: u64, out: &mut Vec<u8>) {
        out.clear();
        match self.shape {
            KeyShape::Random => {
                out.extend_from_slice(&name.to_be_bytes());
                push_random_bytes(!name, self.key_bytes - 8, out);
            }
            KeyShape::Decimal => push_decimal(name, self.key_bytes, out),
            KeyShape::Path => {
                out.extend_from_slice(b"var/lib/archive/");
                push_decimal(name / 1_000_000, 5, out);
                out.push(b'/');
                push_decimal(name / 1000 % 1000, 3, out);
                out.extend_from_slice(b"/document-");
                push_decimal(name % 1000, 3, out);
                out.extend_from_slice(b".txt");
            }
            KeyShape::Url => {
                out.extend_from_slice(b"https://");
                out.extend_from_slice(HOSTS[self.partition_of(name, HOSTS.len())].as_bytes());
                out.extend_from_slice(b"/articles/");
                push_decimal(name / 10_000, 6, out);
                out.extend_from_slice(b"/index.html?page=");
                push_decimal(name % 10_000, 4, out);
            }
            KeyShape::CategoryId => {
                out.extend_from_slice(
                    CATEGORIES[self.partition_of(name, CATEGORIES.len())].as_bytes(),
                );
                out.push(b'-');
                push_decimal(name, 10, out);
            }
        }
    }

    /// Returns the index of the partition that contains a name; names after all partitions count to
    /// the last one.
    #[inline]
    fn partition_of(&self, name: u64, parts: usize) -> usize {
        let part_names = (2 * self.num).div_ceil(parts as u64).max(1);
        ((name / part_names) as usize).min(parts - 1)
    }

    /// Writes the value of a name.
    #[inline]
    pub fn value(&self, name: u64, out: &mut Vec<u8>) {
        out.clear();
        push_random_bytes(name, self.value_bytes, out);
    }

    /// Returns the names of all present keys, in pseudo-random order.
    pub fn shuffled(&self) -> Vec<u64> {
        let mut names: Vec<u64> = (0..self.num).map(|index| self.present(index)).collect();
        if self.shape != KeyShape::Random {
            let mut random = Random::new(7);
            for last in (1..names.len()).rev() {
                names.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
        names
    }

    /// Returns the names of all present keys, in key order.
    pub fn sorted(&self) -> Vec<u64> {
        let mut names: Vec<u64> = (0..self.num).map(|index| self.present(index)).collect();
        names.sort_unstable();
        names
    }
}

/// Appends a number with leading zeros.
pub fn push_decimal(mut number: u64, digits: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + digits, b'0');
    for place in out[start..].iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Appends pseudo-random bytes of a seed.
pub fn push_random_bytes(seed: u64, bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    let mut state = seed;
    while out.len() < end {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = mix(state).to_le_bytes();
        let take = word.len().min(end - out.len());
        out.extend_from_slice(&word[..take]);
    }
}

/// A bijection of the 64-bit numbers, which keeps different numbers different.
#[inline]
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Pseudo-random numbers that are the same for every engine. Committed results depend on them, so
/// they are not those of tests (`umbel_sim::Random`).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: mix(seed) }
    }

    /// Returns a number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mix(self.state)) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_in_name_order() {
        for shape in KeyShape::ALL {
            assert_eq!(KeyShape::parse(&shape.to_string()), Some(shape));
            let keys = KeySet::new(shape, 1000, 16, 10).unwrap();
            let mut names = keys.sorted();
            names.extend((0..1000).map(|index| keys.absent(index)));
            names.extend((0..1000).map(|index| keys.new_name(index)));
            names.sort_unstable();
            let written: Vec<Vec<u8>> = names
                .iter()
                .map(|&name| {
                    let mut key = Vec::new();
                    keys.key(name, &mut key);
                    key
                })
                .collect();
            assert!(written.is_sorted(), "{shape}");
            let different: BTreeSet<_> = written.iter().collect();
            assert_eq!(different.len(), 3000, "{shape}");
            let shuffled: BTreeSet<u64> = keys.shuffled().into_iter().collect();
            assert_eq!(shuffled, keys.sorted().into_iter().collect(), "{shape}");
        }
    }

    #[test]
    fn too_short_keys_are_refused() {
        assert!(KeySet::new(KeyShape::Random, 10, 7, 1).is_err());
        assert!(KeySet::new(KeyShape::Decimal, 1_000_000, 6, 1).is_err());
    }
}
