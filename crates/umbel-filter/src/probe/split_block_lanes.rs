//! A block of the split block filter as eight lanes, in code that compilers turn into vectors.

/// Number of words of a block, and of bits that each key sets.
pub(crate) const LANES: usize = 8;
/// Bytes in a block.
pub(crate) const BLOCK_BYTES: usize = 32;
/// FORMAT: multipliers of the lower half of the hash, from the specification of Parquet.
pub(crate) const SALTS: [u32; LANES] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// FORMAT: the block of `hash`. Any number of blocks up to 2^32: the product is one of a number
/// below 2^32 and one up to it.
#[inline(always)]
pub(crate) fn block_of(hash: u64, blocks: u64) -> u64 {
    (hash >> 32).wrapping_mul(blocks) >> 32
}

/// The words of a block.
#[inline(always)]
pub(crate) fn words(block: &[u8; BLOCK_BYTES]) -> [u32; LANES] {
    let (words, _) = block.as_chunks::<4>();
    std::array::from_fn(|lane| u32::from_le_bytes(words[lane]))
}

/// The bit of `hash` in every word of its block.
#[inline(always)]
pub(crate) fn mask(hash: u64) -> [u32; LANES] {
    std::array::from_fn(|lane| 1 << ((hash as u32).wrapping_mul(SALTS[lane]) >> 27))
}

/// Whether all bits of `hash` are set in its block. The function has no branch: half of a full
/// filter's bits are set, and a branch for each lane would be mispredicted.
#[inline(always)]
pub(crate) fn all_set(block: &[u8; BLOCK_BYTES], hash: u64) -> bool {
    let (words, mask) = (words(block), mask(hash));
    let mut missing = 0;
    for lane in 0..LANES {
        missing |= !words[lane] & mask[lane];
    }
    missing == 0
}
