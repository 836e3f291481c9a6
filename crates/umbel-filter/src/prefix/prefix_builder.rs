//! Builds a prefix filter of a table's keys.

use crate::blocked_bloom::bloom_builder::BloomBuilder;
use crate::prefix::prefix_encoding::{MAX_EXTRACTOR_NAME_BYTES, encode};
use crate::prefix::prefix_extractor::PrefixExtractor;
use crate::prefix::prefix_hasher::PrefixHasher;
use crate::prefix::prefix_rule::PrefixRuleError;

/// FORMAT: offset of the hash number in a filter's header.
pub(super) const HASH_KIND_AT: usize = 6;

/// Collects the hashes of the prefixes of a table's keys, and builds the filter at the end.
///
/// Until the filter is built, a builder takes 8 bytes of memory for each prefix.
#[derive(Debug)]
pub struct PrefixFilterBuilder<E> {
    extractor: E,
    hasher: PrefixHasher,
    hashes: Vec<u64>,
}

impl<E: PrefixExtractor> PrefixFilterBuilder<E> {
    /// Creates a builder of the filter of prefixes by `extractor`.
    ///
    /// # Errors
    /// [`PrefixRuleError::Name`] if the extractor's name is empty or longer than 255 bytes.
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

    /// Adds the prefix of `key`, if the key has one. Equal consecutive prefixes, as of sorted keys,
    /// count once.
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

    /// Builds and encodes the prefix filter, whose inner filter is a blocked Bloom filter with
    /// `bits_per_key` bits for each prefix. Returns no bytes if `bits_per_key` is not above 0 or no
    /// key had a prefix. `seed_id` is the id of the store's seed by which prefixes are hashed.
    pub fn finish(self, bits_per_key: i32, seed_id: u32) -> Vec<u8> {
        self.finish_with(|hashes| {
            let mut builder = BloomBuilder::new(bits_per_key).with_seed_id(seed_id);
            hashes.iter().for_each(|hash| builder.add(*hash));
            builder.finish()
        })
    }

    /// Builds as [`PrefixFilterBuilder::finish`] does, with the inner filter that `build` makes of
    /// the hashes. The bytes of `build` must begin with a filter header, into which this method
    /// writes the number of the hash.
    pub fn finish_with(self, build: impl FnOnce(&[u64]) -> Vec<u8>) -> Vec<u8> {
        let mut inner = if self.hashes.is_empty() { Vec::new() } else { build(&self.hashes) };
        if let Some(hash_kind) = inner.get_mut(HASH_KIND_AT) {
            *hash_kind = self.hasher.kind().number();
            return encode(self.extractor.name(), &inner);
        }
        Vec::new()
    }
}
