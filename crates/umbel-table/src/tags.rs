//! Tags: one byte of each key's hash, 64 in a line, compared all at once.

use crate::format::GROUP_ENTRIES_MAX;

/// The byte of a hash that serves as tag.
#[inline]
pub(crate) fn tag(hash: u64) -> u8 {
    (hash >> 24) as u8
}

/// One bit per tag that equals `tag`, the first lowest.
#[inline]
pub(crate) fn matches(tags: &[u8; GROUP_ENTRIES_MAX], tag: u8) -> u64 {
    // The compiler makes vector instructions of this, and of the loop below eight multiplications:
    // each byte keeps another bit, so that adding the bytes of a word joins their bits.
    let equal: [u8; GROUP_ENTRIES_MAX] =
        std::array::from_fn(|index| if tags[index] == tag { u8::MAX } else { 0 });
    equal.as_chunks::<8>().0.iter().enumerate().fold(0, |mask, (index, word)| {
        let bits = u64::from_le_bytes(*word) & 0x8040_2010_0804_0201;
        mask | (bits.wrapping_mul(0x0101_0101_0101_0101) >> 56) << (8 * index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_finds_its_places() {
        let mut tags = [9u8; GROUP_ENTRIES_MAX];
        for at in [0, 7, 8, 31, 32, 63] {
            tags[at] = 200;
        }
        let expected = [0, 7, 8, 31, 32, 63].iter().fold(0, |mask, at| mask | 1u64 << at);
        assert_eq!(matches(&tags, 200), expected);
        assert_eq!(matches(&tags, 9), !expected);
        assert_eq!(matches(&tags, 1), 0);
    }
}
