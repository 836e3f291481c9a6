//! Filters of `umbel-filter`. A further kind is one more implementation, and a row in `list`.

use std::sync::LazyLock;

use umbel_filter::{Bloom, BloomBuilder, BloomView, HashSecret, Parsed, hash_key};
use umbel_lab::engine::Result;

use crate::filters::contestant::OfHashes;
use crate::filters::keys::secret;

/// Bits for each key, where a filter lets one choose.
pub const BITS_PER_KEY: usize = 10;

/// The secret of every keyed hash here.
pub static SECRET: LazyLock<HashSecret> = LazyLock::new(secret);

fn blocked(hashes: &[u64]) -> Vec<u8> {
    let mut builder = BloomBuilder::new(BITS_PER_KEY as i32);
    hashes.iter().for_each(|hash| builder.add(*hash));
    builder.finish()
}

/// The blocked Bloom filter in memory of its own.
pub struct Blocked(Bloom);

impl OfHashes for Blocked {
    const NAME: &'static str = "umbel-filter `Bloom`";
    const PACKAGE: &'static str = "umbel-filter";
    const HASH: &'static str = "keyed";

    type Asked<'a> = &'a Bloom;

    fn build(hashes: &[u64]) -> Result<Blocked> {
        Ok(Blocked(Bloom::decode(&blocked(hashes))?))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.bytes() as u64 * 8)
    }

    fn asked(&self) -> &Bloom {
        &self.0
    }

    #[inline(always)]
    fn contains(asked: &&Bloom, hash: u64) -> bool {
        asked.may_contain(hash)
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

/// The same read from its encoded bytes where they lie.
pub struct BlockedView(Vec<u8>);

impl OfHashes for BlockedView {
    const NAME: &'static str = "umbel-filter `BloomView`";
    const PACKAGE: &'static str = "umbel-filter";
    const HASH: &'static str = "keyed";

    type Asked<'a> = Option<BloomView<'a>>;

    fn build(hashes: &[u64]) -> Result<BlockedView> {
        Ok(BlockedView(blocked(hashes)))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.len() as u64 * 8)
    }

    fn asked(&self) -> Option<BloomView<'_>> {
        match BloomView::parse(&self.0) {
            Parsed::Bloom(view) => Some(view),
            Parsed::Maybe | Parsed::Malformed(_) => None,
        }
    }

    #[inline(always)]
    fn contains(asked: &Option<BloomView<'_>>, hash: u64) -> bool {
        asked.as_ref().is_none_or(|view| view.may_contain(hash))
    }

    #[inline(always)]
    fn hash(key: &[u8]) -> u64 {
        hash_key(&SECRET, key)
    }
}
