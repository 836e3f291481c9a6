//! Heads of keys: the first eight bytes, behind what many keys have in common.

/// The first eight bytes as a number that sorts like the key; what is missing counts as zero.
#[inline]
pub(super) fn key_head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => short_key_head(key),
    }
}

#[inline(never)]
fn short_key_head(key: &[u8]) -> u64 {
    let mut chunk = [0; 8];
    chunk.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(chunk)
}

/// What neighbouring keys begin with, so that their heads say nothing before it.
#[derive(Debug, Default)]
pub(super) struct Beginning(Vec<u8>);

impl Beginning {
    /// Back to heads of whole keys.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What two neighbouring keys have in common.
    pub(super) fn set(&mut self, one: &[u8], other: &[u8]) {
        let alike = one.iter().zip(other).take_while(|(one, other)| one == other).count();
        // Behind one and the same key stands one that will likely differ in the last bytes.
        let is_same = one.len() == alike && other.len() == alike;
        let kept = if is_same { alike.saturating_sub(8) } else { alike };
        self.0.clear();
        self.0.extend_from_slice(&one[..kept]);
    }

    /// The head of `key`, which is in the order of keys.
    ///
    /// REQUIRES: `key` is not less than every key that begins so: one that begins otherwise is
    /// greater than all that do.
    #[inline]
    pub(super) fn head(&self, key: &[u8]) -> u64 {
        if self.0.is_empty() {
            return key_head(key);
        }
        key.strip_prefix(&self.0[..]).map_or(u64::MAX, key_head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heads_are_in_the_order_of_keys(
            keys in proptest::collection::btree_set(
                proptest::collection::vec(0u8..2, 0..20), 2..40,
            ),
            at: proptest::sample::Index,
        ) {
            let keys: Vec<Vec<u8>> = keys.into_iter().collect();
            let at = at.index(keys.len());
            let mut beginning = Beginning::default();
            for other in [at, (at + 1).min(keys.len() - 1)] {
                beginning.set(&keys[at], &keys[other]);
                let heads: Vec<u64> = keys[at..].iter().map(|key| beginning.head(key)).collect();
                prop_assert!(heads.is_sorted());
            }
        }
    }
}
