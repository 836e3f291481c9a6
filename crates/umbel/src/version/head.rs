//! Heads: the first eight bytes of keys as numbers, which decide most comparisons.

/// The first eight bytes of `key` as a big-endian number, zeros behind a shorter key's end.
///
/// INVARIANT: where the heads of two keys differ, the keys are in the same order as they are.
#[inline]
pub fn head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => short_head(key),
    }
}

#[cold]
fn short_head(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    first[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(first)
}

/// The heads of a table's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// That of its smallest key.
    pub smallest: u64,
    /// That of its upper bound.
    pub largest: u64,
}

/// Where a head lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The key is outside.
    Outside,
    /// The key is inside.
    Inside,
    /// Only the whole key can tell.
    OnBound,
}

impl Heads {
    /// Where keys with this head lie.
    #[inline]
    pub fn place(&self, head: u64) -> Place {
        if self.smallest < head && head < self.largest {
            Place::Inside
        } else if head < self.smallest || self.largest < head {
            Place::Outside
        } else {
            Place::OnBound
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heads_are_in_the_order_of_their_keys(
            left in proptest::collection::vec(0u8..3, 0..11),
            right in proptest::collection::vec(0u8..3, 0..11),
        ) {
            let (first, second) = (head(&left), head(&right));
            prop_assert!(first == second || (first < second) == (left < right));
            prop_assert_eq!(first == head(&[&left[..], &[9; 8]].concat()), left.len() >= 8);
        }
    }
}
