//! Comparison of keys with bounds.

use std::ops::Bound;

/// Writes the least key greater than `key` to `buffer`.
pub fn put_successor(buffer: &mut Vec<u8>, key: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(key);
    buffer.push(0);
}

/// Whether `key` is before the lower bound `lower`.
#[inline]
pub fn is_before_lower(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Unbounded => false,
        Bound::Included(bound) => key < bound.as_slice(),
        Bound::Excluded(bound) => key <= bound.as_slice(),
    }
}

/// Whether `key` is after the upper bound `upper`.
#[inline]
pub fn is_past_upper(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Unbounded => false,
        Bound::Included(bound) => key > bound.as_slice(),
        Bound::Excluded(bound) => key >= bound.as_slice(),
    }
}
