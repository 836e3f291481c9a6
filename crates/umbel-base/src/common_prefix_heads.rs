//! [`CommonPrefix`]: heads of keys after their common prefix.

use crate::key_head;

/// The common prefix of some keys. Heads skip this prefix, because it does not distinguish the
/// keys.
#[derive(Debug, Clone, Default)]
pub struct CommonPrefix(Vec<u8>);

impl CommonPrefix {
    /// Returns the common prefix of these keys.
    pub fn of<'a>(mut keys: impl Iterator<Item = &'a [u8]>) -> CommonPrefix {
        let Some(first) = keys.next() else { return CommonPrefix::default() };
        let shared_len = |one: &[u8]| one.iter().zip(first).take_while(|(a, b)| a == b).count();
        let len = keys.map(shared_len).min().unwrap_or(0);
        CommonPrefix(first[..len].to_vec())
    }

    /// Returns the head of the part of `key` after the prefix.
    ///
    /// INVARIANT: if the heads of two keys differ, they have the same order as the keys, as with
    /// [`key_head()`]. The invariant also holds for keys without the prefix.
    #[inline]
    pub fn head(&self, key: &[u8]) -> u64 {
        if self.0.is_empty() { key_head(key) } else { self.head_after_prefix(key) }
    }

    /// Bytes of memory that the prefix takes.
    pub fn memory_bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns the head after a nonempty prefix. The function is separate, so that keys without a
    /// common prefix do not pay for it.
    #[inline(never)]
    fn head_after_prefix(&self, key: &[u8]) -> u64 {
        let common = self.0.as_slice();
        match key.strip_prefix(common) {
            Some(rest) => key_head(rest),
            // A key without the prefix sorts before or after all keys with it.
            None if key < common => 0,
            None => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn key_heads_keep_key_order(
            left in proptest::collection::vec(0u8..3, 0..11),
            right in proptest::collection::vec(0u8..3, 0..11),
        ) {
            let (first, second) = (key_head(&left), key_head(&right));
            prop_assert!(first == second || (first < second) == (left < right));
            prop_assert_eq!(first == key_head(&[&left[..], &[9; 8]].concat()), left.len() >= 8);
        }

        #[test]
        fn key_heads_after_common_prefix_keep_key_order(
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
            let common = CommonPrefix::of(bounds.iter().map(Vec::as_slice));
            let keys = bounds.iter().chain([&left, &right]);
            for (one, other) in keys.clone().flat_map(|one| keys.clone().map(move |b| (one, b))) {
                let (first, second) = (common.head(one), common.head(other));
                prop_assert!(first == second || (first < second) == (one < other));
            }
        }
    }
}
