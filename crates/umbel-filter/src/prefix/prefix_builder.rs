//! Builds a prefix filter of a table's keys.

use crate::blocked_bloom::bloom_builder::BloomBuilder;
use crate::prefix::prefix_encoding::{MAX_EXTRACTOR_NAME_BYTES, encode};
use crate::prefix::prefix_extractor::PrefixExtractor;
use crate::prefix::prefix_hasher::PrefixHasher;
use crate::prefix::prefix_rule::PrefixRuleError;

/// FORMAT: where a filter's header names its hash.
pub(super) const HASH_KIND_AT: usize = 6;

/// Collects the hashes of the prefixes of a table's keys; the filter is made at the end.
///
/// Takes 8 bytes of memory for each prefix until then.
#[derive(Debug)]
pub struct PrefixFilterBuilder<E> {
    extractor: E,
    hasher: PrefixHasher,
    hashes: Vec<u64>,
}

impl<E: PrefixExtractor> PrefixFilterBuilder<E> {
    /// A builder of the filter of the prefixes that `extractor` cuts.
    ///
    /// # Errors
    /// [`PrefixRuleError::Name`] where the extractor's name is empty or longer than 255 bytes.
    pub fn new(
        extractor: E,
        hasher: PrefixHasher,
    ) -> Result<PrefixFilterBuilder<E>, PrefixRuleError> {
        let bytes = extractor.name().len();
        if !(1..=MAX_EXTRACTOR_NAME_BYTES).contains(&bytes) {
            return Err(PrefixRuleError::Name { bytes });
        }
        Ok(PrefixFilterBuilder { extractor, hasher, hashes: Vec::new() })
    }

    /// Adds the prefix of `key`, where it has one. Equal prefixes in a row, as keys in order have
    /// them, count once.
    #[inline]
    pub fn add(&mut self, key: &[u8]) {
        if let Some(prefix) = self.extractor.prefix(key) {
            let hash = self.hasher.hash(prefix);
            if self.hashes.last() != Some(&hash) {
                self.hashes.push(hash);
            }
        }
    }

    /// Number of prefixes added.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no prefix was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The encoded prefix filter, a blocked Bloom filter of `bits_per_key` bits for each prefix
    /// inside. No bytes where there is no filter: no bits are to be spent, or no key had a prefix.
    /// `seed_id` says which of the store's seeds the prefixes are hashed with.
    pub fn finish(self, bits_per_key: i32, seed_id: u32) -> Vec<u8> {
        self.finish_with(|hashes| {
            let mut builder = BloomBuilder::new(bits_per_key).with_seed_id(seed_id);
            hashes.iter().for_each(|hash| builder.add(*hash));
            builder.finish()
        })
    }

    /// As [`PrefixFilterBuilder::finish`], with the inner filter that `build` makes of the hashes.
    /// Its bytes begin with the header that filters of all kinds have; which hash it is made of is
    /// written there.
    pub fn finish_with(self, build: impl FnOnce(&[u64]) -> Vec<u8>) -> Vec<u8> {
        let mut inner = if self.hashes.is_empty() { Vec::new() } else { build(&self.hashes) };
        if let Some(hash_kind) = inner.get_mut(HASH_KIND_AT) {
            *hash_kind = self.hasher.kind().number();
            return encode(self.extractor.name(), &inner);
        }
        Vec::new()
    }
}
