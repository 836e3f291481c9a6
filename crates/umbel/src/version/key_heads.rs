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

/// What the bounds of all tables begin with: their heads would say nothing before it.
#[derive(Debug, Clone, Default)]
pub struct Common(Vec<u8>);

impl Common {
    /// What these keys have in common.
    pub fn of<'a>(mut keys: impl Iterator<Item = &'a [u8]>) -> Common {
        let Some(first) = keys.next() else { return Common::default() };
        let alike = |one: &[u8]| one.iter().zip(first).take_while(|(a, b)| a == b).count();
        let len = keys.map(alike).min().unwrap_or(0);
        Common(first[..len].to_vec())
    }

    /// The head of what of `key` is behind it.
    ///
    /// INVARIANT: as that of [`head`], whether or not the keys begin so.
    #[inline]
    pub fn head(&self, key: &[u8]) -> u64 {
        if self.0.is_empty() { head(key) } else { self.behind(key) }
    }

    /// Apart, so that keys without a common beginning do not pay for it.
    #[inline(never)]
    fn behind(&self, key: &[u8]) -> u64 {
        let common = self.0.as_slice();
        match key.strip_prefix(common) {
            Some(rest) => head(rest),
            // One that begins otherwise stands before or behind all that begin so.
            None if key < common => 0,
            None => u64::MAX,
        }
    }
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

        #[test]
        fn heads_behind_a_common_beginning_are_too(
            mut bounds in proptest::collection::vec(
                proptest::collection::vec(0u8..2, 0..11), 1..5,
            ),
            beginning in proptest::collection::vec(prop_oneof![Just(0), Just(255)], 0..12),
            mut left in proptest::collection::vec(prop_oneof![Just(0), Just(255)], 0..14),
            mut right in proptest::collection::vec(prop_oneof![Just(0), Just(255)], 0..14),
            begin_so: [bool; 2],
        ) {
            bounds.iter_mut().for_each(|key| drop(key.splice(0..0, beginning.iter().copied())));
            for (key, begins_so) in [&mut left, &mut right].into_iter().zip(begin_so) {
                if begins_so {
                    key.splice(0..0, beginning.iter().copied());
                }
            }
            let common = Common::of(bounds.iter().map(Vec::as_slice));
            let keys = bounds.iter().chain([&left, &right]);
            for (one, other) in keys.clone().flat_map(|one| keys.clone().map(move |b| (one, b))) {
                let (first, second) = (common.head(one), common.head(other));
                prop_assert!(first == second || (first < second) == (one < other));
            }
        }
    }
}
