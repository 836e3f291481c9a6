//! Experiments about bits per key and hashes of Bloom filters, after LevelDB's db_bench.

pub mod bits_and_hashes;
pub mod bits_per_key;
pub mod db_bench_store;
pub mod hash_count;
pub mod leveldb_article;
pub mod more_bits_same_hashes;
pub mod read_missing;
pub mod value_size;
