//! What a table is written with.

use umbel_filter::HashSecret;

use crate::compress::Compression;

/// How a table is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// How many bytes a data block is filled with before it is compressed. Taken as 64 where less
    /// and as 4 MiB where more; an entry larger than this gets a block of its own.
    pub block_bytes: usize,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Filter bits per key; -1 and 0 mean no filter.
    pub bloom_bits: i32,
}

impl Default for TableOptions {
    /// 4 KiB, not compressed, 10 bits per key.
    fn default() -> TableOptions {
        TableOptions { block_bytes: 4096, compression: Compression::None, bloom_bits: 10 }
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
}
