//! Builds the encoded filter of a table whose number of keys is known only at the table's end.

use crate::bloom_variants::block_layout::fill;
use crate::bloom_variants::blocked_512::Blocked512;
use crate::format::bloom_header::{BloomHeader, HEADER_BYTES, put_header};
use crate::hash::keyed_hash::KEYED_HASH_KIND;
use crate::probe::cache_line::LINE_BYTES;
use crate::rate::blocked_rate::{line_count, probes};

/// Collects the hashes of a table's keys; the filter is sized and filled at the end.
///
/// Until the filter is built, a builder takes 8 bytes of memory for each key.
#[derive(Debug)]
pub struct BloomBuilder {
    bits_per_key: i32,
    hash_kind: u8,
    seed_id: u32,
    hashes: Vec<u64>,
}

impl BloomBuilder {
    /// Creates a builder of a filter with `bits_per_key` bits, 1 to 1000, for each key. With 0 or
    /// less the builder collects no hashes and builds no filter.
    pub fn new(bits_per_key: i32) -> BloomBuilder {
        BloomBuilder { bits_per_key, hash_kind: KEYED_HASH_KIND, seed_id: 0, hashes: Vec::new() }
    }

    /// Sets the id of the store's seed by which hashes are computed, for the filter's header.
    pub fn with_seed_id(mut self, seed_id: u32) -> BloomBuilder {
        self.seed_id = seed_id;
        self
    }

    /// Sets the number of the hash by which keys are added, for the filter's header; without a call
    /// it is the keyed hash.
    pub fn with_hash_kind(mut self, hash_kind: u8) -> BloomBuilder {
        self.hash_kind = hash_kind;
        self
    }

    /// Adds a key by its hash. Equal consecutive hashes, as of versions of one key, count once.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if self.bits_per_key > 0 && self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Number of keys added.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no key was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Hashes that were added.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Returns the hashes that were added, to build another filter from them.
    pub fn into_hashes(self) -> Vec<u64> {
        self.hashes
    }

    /// Builds the filter as [`BloomBuilder::build`] does, and consumes the builder.
    pub fn finish(self) -> Vec<u8> {
        self.build()
    }

    /// Encodes the filter of all added hashes. Returns no bytes if no hash was added or the filter
    /// has no bits.
    pub fn build(&self) -> Vec<u8> {
        if self.hashes.is_empty() {
            return Vec::new();
        }
        let keys = self.hashes.len() as u64;
        let lines = line_count(keys, self.bits_per_key);
        let BloomBuilder { hash_kind, seed_id, .. } = *self;
        let header = BloomHeader { probes: probes(self.bits_per_key), keys, hash_kind, seed_id };
        let body = lines as usize * LINE_BYTES;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body);
        put_header(&mut bytes, header, lines);
        bytes.resize(HEADER_BYTES + body, 0);
        fill::<Blocked512>(&mut bytes[HEADER_BYTES..], &self.hashes, header.probes);
        bytes
    }
}
