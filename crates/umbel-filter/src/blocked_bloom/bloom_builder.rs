//! Builds the encoded filter of a table whose number of keys is known only at its end.

use crate::bloom_variants::block_layout::fill;
use crate::bloom_variants::blocked_512::Blocked512;
use crate::format::bloom_header::{BloomHeader, HEADER_BYTES, put_header};
use crate::hash::keyed_hash::KEYED_HASH_KIND;
use crate::probe::cache_line::LINE_BYTES;
use crate::rate::blocked_rate::{line_count, probes};

/// Collects the hashes of a table's keys; the filter is sized and filled at the end.
///
/// Takes 8 bytes of memory for each key until then.
#[derive(Debug)]
pub struct BloomBuilder {
    bits_per_key: i32,
    hash_kind: u8,
    seed_id: u32,
    hashes: Vec<u64>,
}

impl BloomBuilder {
    /// A builder that will spend `bits_per_key` bits, 1 to 1000, on each key. With 0 or less it
    /// collects nothing and builds no filter.
    pub fn new(bits_per_key: i32) -> BloomBuilder {
        BloomBuilder { bits_per_key, hash_kind: KEYED_HASH_KIND, seed_id: 0, hashes: Vec::new() }
    }

    /// Notes in the filter which of the store's seeds its hashes are made with.
    pub fn with_seed_id(mut self, seed_id: u32) -> BloomBuilder {
        self.seed_id = seed_id;
        self
    }

    /// Notes in the filter the number of the hash that its keys are added with, where it is not the
    /// keyed one.
    pub fn with_hash_kind(mut self, hash_kind: u8) -> BloomBuilder {
        self.hash_kind = hash_kind;
        self
    }

    /// Adds a key by its hash. Equal hashes in a row, the versions of one key, count once.
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

    /// Hashes that were added, to build another filter from them.
    pub fn into_hashes(self) -> Vec<u64> {
        self.hashes
    }

    /// As [`BloomBuilder::build`], for the last time.
    pub fn finish(self) -> Vec<u8> {
        self.build()
    }

    /// Encodes the filter of all added hashes. Returns no bytes where there is no filter:
    /// no hash was added, or the filter has no bits.
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
