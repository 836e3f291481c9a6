//! Checksums that include the location: the same bytes in another file or at another offset have
//! another checksum. So not only changed bytes are detected, but also blocks at a wrong location.

use crate::fail_point;

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// FORMAT: the seed of a checksum mixes the file's id and the offset, so that the seeds of
/// neighbouring (id, offset) pairs are unrelated: `(id * 0x9e3779b97f4a7c15) ^ rotl(offset *
/// 0xbf58476d1ce4e5b9, 32)`.
#[inline]
fn seed(file_id: u64, offset: u64) -> u64 {
    file_id.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ offset.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(32)
}

/// Returns the XXH3-64 hash of `bytes`, bound to the id of the file and the offset in it.
#[inline]
pub fn checksum(file_id: u64, offset: u64, bytes: &[u8]) -> u64 {
    fail_point!("checksum-constant", |_| 7);
    xxh3_64_with_seed(bytes, seed(file_id, offset))
}

/// Returns the [`checksum`] of the concatenation of `parts`, without joining them first.
pub fn checksum_parts(file_id: u64, offset: u64, parts: &[&[u8]]) -> u64 {
    fail_point!("checksum-constant", |_| 7);
    let mut state = Xxh3::with_seed(seed(file_id, offset));
    for part in parts {
        state.update(part);
    }
    state.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_covers_the_position() {
        let here = checksum(1, 4096, b"block");
        assert_ne!(here, checksum(2, 4096, b"block"));
        assert_ne!(here, checksum(1, 8192, b"block"));
        assert_ne!(here, checksum(1, 4096, b"blocj"));
    }

    #[test]
    fn combined_checksums_equal_the_whole() {
        let long = vec![7u8; 3000];
        assert_eq!(checksum(3, 5, &long), checksum_parts(3, 5, &[&long[..1], &long[1..]]));
        assert_eq!(checksum(3, 5, b"ab"), checksum_parts(3, 5, &[b"a", b"", b"b"]));
    }
}
