//! Options of a table.

use umbel_filter::{FilterKind, HashKind, HashSecret, KeyHasher, PrefixHasher};

use crate::compression::Compression;

/// Layout options of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableOptions {
    /// Number of bytes a data block is filled with before it is compressed. Taken as 64 where less
    /// and as 4 MiB where more; an entry larger than this gets a block of its own.
    pub block_bytes: usize,
    /// Compression of blocks.
    pub compression: Compression,
    /// Filter bits per key; -1 and 0 mean no filter.
    pub bloom_bits: i32,
    /// The kind of the plain filter.
    pub filter_kind: FilterKind,
    /// Number of bits of the plain filter a key sets; `None`: as many as are best for `bloom_bits`.
    /// Where its kind does not have that many, the filter is the usual one: lines of 512 bits.
    pub filter_probes: Option<u8>,
    /// A second filter of the same keys, to be kept in memory instead of the plain one. None where
    /// there is no plain one.
    pub second_filter: Option<FilterChoice>,
}

/// A filter to build.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterChoice {
    /// Its kind.
    pub kind: FilterKind,
    /// Its bits for each key, about.
    pub bits_per_key: f64,
}

impl Default for TableOptions {
    /// 4 KiB, not compressed, 10 bits per key in lines of 512 bits, no second filter.
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

/// The hash that filters and tags are made with, and its name in files.
#[derive(Debug, Clone, Copy)]
pub struct TableHasher {
    /// Hash of keys. INVARIANT: the hash of a kind [that tables
    /// have](TableHasher::KINDS).
    pub keys: KeyHasher,
    /// Id of the store's seed of the hashes.
    pub seed_id: u32,
    /// Hash of prefixes, where there are prefix filters.
    pub prefixes: Option<PrefixHasher>,
}

impl TableHasher {
    /// The hashes of which tables are made: those under which no program without the seed
    /// can choose keys that collide.
    pub const KINDS: [HashKind; 2] = [HashKind::Keyed, HashKind::SipHash13];

    /// The usual hash with a seed, for tables without prefix filters.
    pub fn keyed(seed: [u8; 16], seed_id: u32) -> TableHasher {
        let keys = KeyHasher::keyed(HashSecret::from_seed(seed));
        TableHasher { keys, seed_id, prefixes: None }
    }

    /// The number of the hash in files.
    pub(crate) fn kind(&self) -> u8 {
        self.keys.kind().number()
    }
}
