//! Tags: one byte of each key's hash.

/// The byte of a hash that serves as tag.
#[inline]
pub(crate) fn tag(hash: u64) -> u8 {
    (hash >> 24) as u8
}
