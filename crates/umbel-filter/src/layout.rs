//! Blocks of bits, of which a key uses one: how the blocked kinds differ, and their common view.

use crate::ask::{Ask, IN_CACHE, ones};
use crate::header::FilterHeader;
use std::fmt;
use std::hint::black_box;

/// How many hashes are looked at together: as many cache misses as a core keeps under way, and
/// more.
const GROUP: usize = 32;

/// So many bytes as a block has.
pub(crate) trait BlockBytes: Copy + fmt::Debug + AsRef<[u8]> + 'static {
    /// The payload as blocks.
    fn blocks(payload: &[u8]) -> &[Self];

    /// The payload as blocks to write.
    fn blocks_mut(payload: &mut [u8]) -> &mut [Self];

    /// The blocks as payload.
    fn payload(blocks: &[Self]) -> &[u8];
}

impl<const BYTES: usize> BlockBytes for [u8; BYTES] {
    fn blocks(payload: &[u8]) -> &[Self] {
        payload.as_chunks().0
    }

    fn blocks_mut(payload: &mut [u8]) -> &mut [Self] {
        payload.as_chunks_mut().0
    }

    fn payload(blocks: &[Self]) -> &[u8] {
        blocks.as_flattened()
    }
}

/// How keys are laid out in blocks.
pub(crate) trait Layout: Copy + fmt::Debug + 'static {
    /// The bytes of a block.
    type Block: BlockBytes;

    /// The block of `hash` among `blocks`: less than that.
    fn block_of(hash: u64, blocks: u64) -> u64;

    /// Sets the bits of `hash` in its block.
    fn add(block: &mut Self::Block, hash: u64, probes: u32);

    /// Whether all bits of `hash` are set in its block.
    fn has(block: &Self::Block, hash: u64, probes: u32) -> bool;

    /// The share of absent keys that pass.
    fn designed_rate(keys: u64, blocks: u64, probes: u32) -> f64;

    /// The chance that a key leaves a given bit of its block alone.
    fn bit_missed(probes: u32) -> f64;

    /// The share of absent keys of this block that pass.
    fn block_rate(block: &Self::Block, probes: u32) -> f64;

    /// Answers for a few hashes whose blocks are in the cache.
    fn answer(blocks: &[Self::Block], hashes: &[u64], probes: u32, found: &mut [bool]);
}

/// A filter of blocks in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockView<'a, L: Layout> {
    header: FilterHeader,
    blocks: &'a [L::Block],
}

impl<'a, L: Layout> BlockView<'a, L> {
    /// REQUIRES: the payload has the length that the header says.
    pub(crate) fn new(header: FilterHeader, payload: &'a [u8]) -> BlockView<'a, L> {
        BlockView { header, blocks: L::Block::blocks(payload) }
    }

    /// The same filter over `payload`, which must be the same bytes somewhere else.
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> BlockView<'b, L> {
        BlockView::new(self.header, payload)
    }

    fn length(&self) -> u64 {
        self.blocks.len() as u64
    }
}

impl<L: Layout> Ask for BlockView<'_, L> {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        let block = self.blocks.get(L::block_of(hash, self.length()) as usize);
        block.is_none_or(|block| L::has(block, hash, u32::from(self.header.probes)))
    }

    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let probes = u32::from(self.header.probes);
        if size_of_val(self.blocks) <= IN_CACHE {
            return L::answer(self.blocks, hashes, probes, found);
        }
        for (hashes, found) in hashes.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            touch::<L>(self.blocks, hashes);
            L::answer(self.blocks, hashes, probes, found);
        }
    }

    fn header(&self) -> FilterHeader {
        self.header
    }

    fn payload(&self) -> Option<&[u8]> {
        Some(L::Block::payload(self.blocks))
    }

    fn estimated_keys(&self) -> f64 {
        let payload = L::Block::payload(self.blocks);
        let unset = 1.0 - ones(payload) as f64 / (payload.len() as f64 * 8.0);
        let touched = (1.0 - L::bit_missed(self.header.probes.into())) / self.length() as f64;
        // Not a negative zero for an empty filter.
        unset.ln() / (-touched).ln_1p() + 0.0
    }

    fn estimated_rate(&self) -> f64 {
        let probes = u32::from(self.header.probes);
        let sum: f64 = self.blocks.iter().map(|block| L::block_rate(block, probes)).sum();
        sum / self.length() as f64
    }
}

/// Reads a byte at both ends of the block of every hash, so that the blocks come from memory all at
/// once and not one after the other; blocks that are not aligned lie in two cache lines.
#[inline(always)]
fn touch<L: Layout>(blocks: &[L::Block], hashes: &[u64]) {
    let mut all = 0;
    for hash in hashes {
        if let Some(block) = blocks.get(L::block_of(*hash, blocks.len() as u64) as usize) {
            let bytes = block.as_ref();
            all ^= bytes[0] ^ bytes[bytes.len() - 1];
        }
    }
    black_box(all);
}

/// Sets the bits of all hashes in the payload of a filter.
pub(crate) fn fill<L: Layout>(payload: &mut [u8], hashes: &[u64], probes: u32) {
    let blocks = L::Block::blocks_mut(payload);
    let length = blocks.len() as u64;
    let in_cache = size_of_val(blocks) <= IN_CACHE;
    for hashes in hashes.chunks(GROUP) {
        if !in_cache {
            touch::<L>(blocks, hashes);
        }
        for hash in hashes {
            if let Some(block) = blocks.get_mut(L::block_of(*hash, length) as usize) {
                L::add(block, *hash, probes);
            }
        }
    }
}
