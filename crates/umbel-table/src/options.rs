//! What a table is written with.

use umbel_filter::{FilterKind, HashSecret, PrefixHasher};

use crate::compress::Compression;

/// How a table is laid out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableOptions {
    /// How many bytes a data block is filled with before it is compressed. Taken as 64 where less
    /// and as 4 MiB where more; an entry larger than this gets a block of its own.
    pub block_bytes: usize,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Filter bits per key; -1 and 0 mean no filter.
    pub bloom_bits: i32,
    /// The kind of the plain filter.
    pub filter_kind: FilterKind,
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
            second_filter: None,
        }
    }
}

/// The hash that filters and tags are made with, and its names in files.
#[derive(Debug, Clone)]
pub struct KeyHasher {
    /// The secret that keys the hash.
    pub secret: HashSecret,
    /// Which hash it is: [`umbel_filter::KEYED_HASH_KIND`].
    pub kind: u8,
    /// Which seed of the store the secret was derived from.
    pub seed_id: u32,
    /// What prefixes are hashed with, where there are prefix filters.
    pub prefixes: Option<PrefixHasher>,
}
