//! [`SharedPrefix`]: the prefix that neighbouring keys share. Key heads are made of the bytes after
//! the shared prefix.

use umbel_base::key_head;

/// Length of the common prefix of two keys.
fn shared_len(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
    let mut len = 0;
    for (one, other) in chunks {
        let differing = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differing != 0 {
            return len + (differing.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    let rest = one[len..].iter().zip(&other[len..]);
    len + rest.take_while(|(one, other)| one == other).count()
}

/// Common prefix of neighbouring keys, which their heads omit.
#[derive(Debug, Default)]
pub(super) struct SharedPrefix(Vec<u8>);

impl SharedPrefix {
    /// Clears the prefix, so that heads are made of whole keys again.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Sets the common prefix of two neighbouring keys.
    pub(super) fn set(&mut self, one: &[u8], other: &[u8]) {
        let shared = shared_len(one, other);
        // After one and the same key comes one that probably differs in the last bytes.
        let is_same = one.len() == shared && other.len() == shared;
        let kept = if is_same { shared.saturating_sub(8) } else { shared };
        self.0.clear();
        self.0.extend_from_slice(&one[..kept]);
    }

    /// Returns the head of `key` after the prefix. Heads sort like their keys.
    ///
    /// REQUIRES: `key` has the prefix or is greater than all keys with the prefix.
    #[inline]
    pub(super) fn head(&self, key: &[u8]) -> u64 {
        if self.0.is_empty() {
            return key_head(key);
        }
        let Some(rest) = key.strip_prefix(&self.0[..]) else { return u64::MAX };
        match (rest.first_chunk(), key.last_chunk()) {
            (Some(head), _) => u64::from_be_bytes(*head),
            // The last eight bytes contain the whole rest, and part of the prefix before it.
            (_, Some(last)) => {
                let shift = 64 - 8 * rest.len() as u32;
                u64::from_be_bytes(*last).checked_shl(shift).unwrap_or(0)
            }
            _ => key_head(rest),
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
            keys in proptest::collection::btree_set(
                proptest::collection::vec(0u8..2, 0..20), 2..40,
            ),
            at: proptest::sample::Index,
        ) {
            let keys: Vec<Vec<u8>> = keys.into_iter().collect();
            let at = at.index(keys.len());
            let mut beginning = SharedPrefix::default();
            for other in [at, (at + 1).min(keys.len() - 1)] {
                beginning.set(&keys[at], &keys[other]);
                let heads: Vec<u64> = keys[at..].iter().map(|key| beginning.head(key)).collect();
                prop_assert!(heads.is_sorted());
            }
        }
    }
}
