//! Options of a table.

use umbel_filter::{FilterKind, HashKind, HashSecret, KeyHasher, PrefixHasher};

use crate::compression::Compression;

/// Layout options of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableOptions {
    /// Bytes of a full data block before compression, from 64 to 4 MiB; other numbers count as the
    /// nearest limit. A larger entry gets a block of its own.
    pub block_bytes: usize,
    /// Compression of blocks.
    pub compression: Compression,
    /// Filter bits per key; -1 and 0 mean no filter.
    pub bloom_bits: i32,
    /// The kind of the plain filter.
    pub filter_kind: FilterKind,
    /// Number of bits of the plain filter that a key sets; `None`: the best number for
    /// `bloom_bits`. If the filter's kind cannot have this number, a filter of 512-bit blocks is
    /// used.
    pub filter_probes: Option<u8>,
    /// A second filter of the same keys, to be kept in memory instead of the plain one. Ignored if
    /// the table has no plain filter.
    pub second_filter: Option<FilterChoice>,
}

/// Kind and size of a filter to build.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterChoice {
    /// Kind of the filter.
    pub kind: FilterKind,
    /// Approximate bits per key of the filter.
    pub bits_per_key: f64,
}

impl Default for TableOptions {
    /// Blocks of 4 KiB, no compression, a filter of 512-bit blocks with 10 bits per key, no second
    /// filter.
    fn default() -> TableOptions {
        TableOptions {
            block_bytes: 4096,
            compression: Compression::None,
            bloom_bits: 10,
            filter_kind: FilterKind::default(),
            filter_probes: None,
            second_filter: None,
        }
    }
}

/// The hash function of filters and tags, and its kind and seed id as files name them.
#[derive(Debug, Clone, Copy)]
pub struct TableHasher {
    /// Hash function of keys. INVARIANT: its kind is one [that tables have](TableHasher::KINDS).
    pub keys: KeyHasher,
    /// Id of the seed of the store's hash functions.
    pub seed_id: u32,
    /// Hash function of prefixes; `None` without prefix filters.
    pub prefixes: Option<PrefixHasher>,
}

impl TableHasher {
    /// The kinds of hash functions that tables can have: those with which a program without the
    /// seed cannot choose keys that collide.
    pub const KINDS: [HashKind; 2] = [HashKind::Keyed, HashKind::SipHash13];

    /// Creates the default hash function with a seed, for tables without prefix filters.
    pub fn keyed(seed: [u8; 16], seed_id: u32) -> TableHasher {
        let keys = KeyHasher::keyed(HashSecret::from_seed(seed));
        TableHasher { keys, seed_id, prefixes: None }
    }

    /// Returns the number of the hash function's kind in files.
    pub(crate) fn kind(&self) -> u8 {
        self.keys.kind().number()
    }
}
