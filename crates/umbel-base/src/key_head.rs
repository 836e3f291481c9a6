//! [`key_head`]: the first eight bytes of a key as a number, which decides most comparisons.

/// Returns the first eight bytes of `key` as a big-endian number; missing bytes count as zero.
///
/// INVARIANT: if the heads of two keys differ, they have the same order as the keys.
#[inline]
pub fn key_head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => short_key_head(key),
    }
}

#[cold]
fn short_key_head(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    first[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(first)
}
