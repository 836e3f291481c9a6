//! Blocked filters, in which a key sets bits of one block: layouts of the kinds, and their common
//! view.

use crate::bloom_variants::kind_view_trait::{
    CACHED_BYTES, GROUP, KindView, ones, probe_in_groups,
};
use crate::format::filter_header::FilterHeader;
use crate::simd::{ProbeInput, VectorizedFilter, Vectors, prefetch};
use std::fmt;

/// Bytes of one block.
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

/// Layout of keys in blocks.
pub(crate) trait BlockLayout: Copy + fmt::Debug + 'static {
    /// The bytes of a block.
    type Block: BlockBytes;

    /// The number of the block of `hash`, less than `blocks`.
    fn block_of(hash: u64, blocks: u64) -> u64;

    /// Sets the bits of `hash` in its block.
    fn add(block: &mut Self::Block, hash: u64, probes: u32);

    /// Whether all bits of `hash` are set in its block, without vectors.
    fn has(block: &Self::Block, hash: u64, probes: u32) -> bool;

    /// Function that probes one hash with vector instructions, if the processor has them.
    fn vectorized(vectors: Vectors, input: ProbeInput<'_>) -> Option<VectorizedFilter<'_>>;

    /// The share of absent keys that pass.
    fn designed_rate(keys: u64, blocks: u64, probes: u32) -> f64;

    /// The chance that a key does not set a given bit of its block.
    fn bit_missed(probes: u32) -> f64;

    /// The share of absent keys in this block that pass.
    fn block_rate(block: &Self::Block, probes: u32) -> f64;

    /// Probes a few hashes whose blocks are in the cache, with vector instructions. Returns `None`
    /// and does nothing if the processor lacks them.
    fn answer(
        vectors: Vectors,
        blocks: &[Self::Block],
        hashes: &[u64],
        probes: u32,
        found: &mut [bool],
    ) -> Option<()>;
}

/// A filter of blocks in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedFilterView<'a, L: BlockLayout> {
    header: FilterHeader,
    vectors: Vectors,
    blocks: &'a [L::Block],
}

impl<'a, L: BlockLayout> BlockedFilterView<'a, L> {
    /// REQUIRES: the payload has the length in the header.
    pub(crate) fn new(header: FilterHeader, payload: &'a [u8]) -> BlockedFilterView<'a, L> {
        let vectors = Vectors::of_this_processor();
        BlockedFilterView { header, vectors, blocks: L::Block::blocks(payload) }
    }

    /// Returns the same filter over `payload`, which must be the same bytes at another address.
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> BlockedFilterView<'b, L> {
        let BlockedFilterView { header, vectors, .. } = *self;
        BlockedFilterView { header, vectors, blocks: L::Block::blocks(payload) }
    }

    /// Function that probes one hash with vector instructions, if the processor has them.
    pub(crate) fn whole(&self) -> Option<VectorizedFilter<'a>> {
        let (payload, probes) = (L::Block::payload(self.blocks), self.header.probes);
        let (blocks, _) = payload.as_chunks();
        L::vectorized(self.vectors, ProbeInput { payload, blocks, bits: 0, probes })
    }

    /// Probes a few hashes whose blocks are in the cache.
    fn answer(&self, hashes: &[u64], found: &mut [bool]) {
        let probes = self.header.probes.into();
        if L::answer(self.vectors, self.blocks, hashes, probes, found).is_none() {
            for (hash, found) in hashes.iter().zip(found) {
                *found = self.contains(*hash);
            }
        }
    }

    fn length(&self) -> u64 {
        self.blocks.len() as u64
    }
}

impl<L: BlockLayout> KindView for BlockedFilterView<'_, L> {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        let block = self.blocks.get(L::block_of(hash, self.length()) as usize);
        block.is_none_or(|block| L::has(block, hash, self.header.probes.into()))
    }

    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        if size_of_val(self.blocks) <= CACHED_BYTES {
            return self.answer(hashes, found);
        }
        let crosses = crosses_lines(self.blocks);
        let near = |hash| prefetch_block::<L>(self.blocks, crosses, hash);
        probe_in_groups(hashes, found, near, |hashes, found| self.answer(hashes, found));
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

/// Prefetches the block of `hash`.
#[inline(always)]
fn prefetch_block<L: BlockLayout>(blocks: &[L::Block], crosses: bool, hash: u64) {
    let block = blocks.get(L::block_of(hash, blocks.len() as u64) as usize);
    if let Some([first, .., last]) = block.map(AsRef::as_ref) {
        prefetch(first);
        if crosses {
            prefetch(last);
        }
    }
}

/// Whether a block can span two cache lines.
fn crosses_lines<B>(blocks: &[B]) -> bool {
    !blocks.as_ptr().addr().is_multiple_of(size_of::<B>())
}

/// Sets the bits of all hashes in the payload of a filter.
pub(crate) fn fill<L: BlockLayout>(payload: &mut [u8], hashes: &[u64], probes: u32) {
    let blocks = L::Block::blocks_mut(payload);
    let length = blocks.len() as u64;
    let crosses = crosses_lines(blocks);
    let is_large = size_of_val(blocks) > CACHED_BYTES;
    for (at, hash) in hashes.iter().enumerate() {
        if is_large && let Some(later) = hashes.get(at + GROUP) {
            prefetch_block::<L>(blocks, crosses, *later);
        }
        if let Some(block) = blocks.get_mut(L::block_of(*hash, length) as usize) {
            L::add(block, *hash, probes);
        }
    }
}
