//! Blocked Bloom filters of `umbel-filter`. A further kind needs an implementation and a row in
//! `candidate_list`.

use std::sync::LazyLock;

use umbel_filter::{Bloom, BloomBuilder, BloomView, HashSecret, ParsedBloom, hash_key};
use umbel_lab::engine::Result;

use crate::filters::candidate_filter::HashFilter;
use crate::filters::filter_keys::secret;

/// Bits for each key, in filters with such a setting.
pub const BITS_PER_KEY: usize = 10;

/// Secret of every keyed hash in the comparison.
pub static SECRET: LazyLock<HashSecret> = LazyLock::new(secret);

fn blocked(hashes: &[u64]) -> Vec<u8> {
    let mut builder = BloomBuilder::new(BITS_PER_KEY as i32);
    hashes.iter().for_each(|hash| builder.add(*hash));
    builder.finish()
}

/// Blocked Bloom filter that owns its memory.
pub struct Blocked(Bloom);

impl HashFilter for Blocked {
    const NAME: &'static str = "umbel-filter `Bloom`";
    const PACKAGE: &'static str = "umbel-filter";
    const HASH: &'static str = "keyed";

    type Probe<'a> = &'a Bloom;

    fn build(hashes: &[u64]) -> Result<Blocked> {
        Ok(Blocked(Bloom::decode(&blocked(hashes))?))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.bytes() as u64 * 8)
    }

    fn probe(&self) -> &Bloom {
        &self.0
    }

    #[inline(always)]
    fn contains(probe: &&Bloom, hash: u64) -> bool {
        probe.may_contain(hash)
    }

    fn batch(&self, hashes: &[u64], found: &mut [bool]) -> bool {
        self.0.contains_batch(hashes, found);
        true
    }

    #[inline(always)]
    fn hash(key: &[u8]) -> u64 {
        hash_key(&SECRET, key)
    }
}

/// Blocked Bloom filter that is read in place from its encoded bytes.
pub struct BlockedView(Vec<u8>);

impl HashFilter for BlockedView {
    const NAME: &'static str = "umbel-filter `BloomView`";
    const PACKAGE: &'static str = "umbel-filter";
    const HASH: &'static str = "keyed";

    type Probe<'a> = Option<BloomView<'a>>;

    fn build(hashes: &[u64]) -> Result<BlockedView> {
        Ok(BlockedView(blocked(hashes)))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.len() as u64 * 8)
    }

    fn probe(&self) -> Option<BloomView<'_>> {
        match BloomView::parse(&self.0) {
            ParsedBloom::Bloom(view) => Some(view),
            ParsedBloom::Maybe | ParsedBloom::Malformed(_) => None,
        }
    }

    #[inline(always)]
    fn contains(probe: &Option<BloomView<'_>>, hash: u64) -> bool {
        probe.as_ref().is_none_or(|view| view.may_contain(hash))
    }

    #[inline(always)]
    fn hash(key: &[u8]) -> u64 {
        hash_key(&SECRET, key)
    }
}
