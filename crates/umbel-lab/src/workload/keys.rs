//! Keys and values, made from numbers when they are needed: a table of them would take the cache
//! misses that are to be measured.
//!
//! INVARIANT: a key's *name* is a number; keys are in the order of their names. The names of
//! present and absent keys are disjoint and lie between each other.

use std::fmt;

/// What keys look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Bytes that look random.
    Random,
    /// Decimal numbers with leading zeros, every other one of which is there.
    Decimal,
    /// Paths of files, a thousand to a folder.
    Path,
    /// Addresses of pages: some hosts, each with sections and numbered pages.
    Url,
    /// Names of streams: a category and a number, `customer-0000001234`, as event stores use them.
    CategoryId,
}

/// The hosts of [`Shape::Url`], ascending.
const HOSTS: [&str; 4] =
    ["docs.example.org", "en.example.com", "shop.example.com", "www.example.net"];
/// The categories of [`Shape::CategoryId`], ascending.
const CATEGORIES: [&str; 5] = ["account", "basket", "customer", "order", "shipment"];

impl Shape {
    /// The shape of this name.
    pub fn parse(name: &str) -> Option<Shape> {
        match name {
            "random" => Some(Shape::Random),
            "decimal" => Some(Shape::Decimal),
            "path" => Some(Shape::Path),
            "url" => Some(Shape::Url),
            "category-id" => Some(Shape::CategoryId),
            _ => None,
        }
    }

    /// Every shape.
    pub const ALL: [Shape; 5] =
        [Shape::Random, Shape::Decimal, Shape::Path, Shape::Url, Shape::CategoryId];
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Random => "random",
            Shape::Decimal => "decimal",
            Shape::Path => "path",
            Shape::Url => "url",
            Shape::CategoryId => "category-id",
        })
    }
}

/// The keys of a run.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    shape: Shape,
    key_bytes: usize,
    value_bytes: usize,
    num: u64,
}

/// Where the numbers of absent keys start that are mixed into random names.
const ABSENT: u64 = 1 << 48;

impl Keys {
    /// `num` keys of this shape.
    ///
    /// # Errors
    /// A sentence, where that many keys of that length do not exist.
    pub fn new(
        shape: Shape,
        num: u64,
        key_bytes: usize,
        value_bytes: usize,
    ) -> Result<Keys, String> {
        let digits = (2 * num).to_string().len();
        let least = match shape {
            Shape::Random => 8,
            Shape::Decimal => digits,
            Shape::Path | Shape::Url | Shape::CategoryId => 0,
        };
        if key_bytes < least || key_bytes > 511 {
            return Err(format!("--key is {key_bytes}, but must be {least} to 511 for {num} keys"));
        }
        Ok(Keys { shape, key_bytes, value_bytes, num })
    }

    /// How many keys are there.
    pub fn num(&self) -> u64 {
        self.num
    }

    /// The name of a key that is there.
    #[inline]
    pub fn present(&self, index: u64) -> u64 {
        match self.shape {
            Shape::Random => mix(index),
            _ => 2 * index,
        }
    }

    /// The name of a key that is not there.
    #[inline]
    pub fn absent(&self, index: u64) -> u64 {
        match self.shape {
            Shape::Random => mix(ABSENT + index),
            _ => 2 * index + 1,
        }
    }

    /// The name of a key that was never written, for writing on: behind all others where keys are
    /// in order, anywhere where they are random.
    #[inline]
    pub fn further(&self, index: u64) -> u64 {
        match self.shape {
            Shape::Random => mix(2 * ABSENT + index),
            _ => 2 * (self.num + index),
        }
    }

    /// Writes the key of a name.
    #[inline]
    pub fn key(&self, name: u64, out: &mut Vec<u8>) {
        out.clear();
        match self.shape {
            Shape::Random => {
                out.extend_from_slice(&name.to_be_bytes());
                stream(!name, self.key_bytes - 8, out);
            }
            Shape::Decimal => decimal(name, self.key_bytes, out),
            Shape::Path => {
                out.extend_from_slice(b"var/lib/archive/");
                decimal(name / 1_000_000, 5, out);
                out.push(b'/');
                decimal(name / 1000 % 1000, 3, out);
                out.extend_from_slice(b"/document-");
                decimal(name % 1000, 3, out);
                out.extend_from_slice(b".txt");
            }
            Shape::Url => {
                out.extend_from_slice(b"https://");
                out.extend_from_slice(HOSTS[self.part(name, HOSTS.len())].as_bytes());
                out.extend_from_slice(b"/articles/");
                decimal(name / 10_000, 6, out);
                out.extend_from_slice(b"/index.html?page=");
                decimal(name % 10_000, 4, out);
            }
            Shape::CategoryId => {
                out.extend_from_slice(CATEGORIES[self.part(name, CATEGORIES.len())].as_bytes());
                out.push(b'-');
                decimal(name, 10, out);
            }
        }
    }

    /// Which of `parts` equal stretches of all names this one lies in; behind them, the last.
    #[inline]
    fn part(&self, name: u64, parts: usize) -> usize {
        let part_names = (2 * self.num).div_ceil(parts as u64).max(1);
        ((name / part_names) as usize).min(parts - 1)
    }

    /// Writes the value of a name.
    #[inline]
    pub fn value(&self, name: u64, out: &mut Vec<u8>) {
        out.clear();
        stream(name, self.value_bytes, out);
    }

    /// The names of all keys that are there, in an order without order.
    pub fn shuffled(&self) -> Vec<u64> {
        let mut names: Vec<u64> = (0..self.num).map(|index| self.present(index)).collect();
        if self.shape != Shape::Random {
            let mut random = Random::new(7);
            for last in (1..names.len()).rev() {
                names.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
        names
    }

    /// The names of all keys that are there, in key order.
    pub fn sorted(&self) -> Vec<u64> {
        let mut names: Vec<u64> = (0..self.num).map(|index| self.present(index)).collect();
        names.sort_unstable();
        names
    }
}

/// Appends a number with leading zeros.
pub(crate) fn decimal(mut number: u64, digits: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + digits, b'0');
    for place in out[start..].iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Appends bytes that look random, the same for the same seed.
pub(crate) fn stream(seed: u64, bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    let mut state = seed;
    while out.len() < end {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = mix(state).to_le_bytes();
        let take = word.len().min(end - out.len());
        out.extend_from_slice(&word[..take]);
    }
}

/// A bijection of the 64-bit numbers, so that different numbers stay different.
#[inline]
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Random numbers that are the same for every engine.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: mix(seed) }
    }

    /// A number below `bound`.
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
    fn keys_are_distinct_and_in_the_order_of_their_names() {
        for shape in Shape::ALL {
            assert_eq!(Shape::parse(&shape.to_string()), Some(shape));
            let keys = Keys::new(shape, 1000, 16, 10).unwrap();
            let mut names = keys.sorted();
            names.extend((0..1000).map(|index| keys.absent(index)));
            names.extend((0..1000).map(|index| keys.further(index)));
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
        assert!(Keys::new(Shape::Random, 10, 7, 1).is_err());
        assert!(Keys::new(Shape::Decimal, 1_000_000, 6, 1).is_err());
    }
}
