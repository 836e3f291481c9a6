//! Every limit as a number. `docs/PROMISES.md` repeats them for users; a test compares the two.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longest value that stands among the keys, in bytes, unless a store's options say otherwise; a
/// longer one gets a file of its own.
pub const INLINE_VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes of keys and values in one batch, those of values with files of their own not counted.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Most operations in one batch.
pub const BATCH_OPERATIONS_MAX: usize = 16 * 1024 * 1024;
/// Most keyspaces in one store.
pub const KEYSPACES_MAX: usize = 1024;
/// Longest keyspace name, in bytes.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;
/// Longest marker a keyspace without a log stores with a flush, in bytes.
pub const MARKER_BYTES_MAX: usize = 64 * 1024;
/// Levels of a keyspace, level 0 included.
pub const LEVELS: usize = 7;
/// Fewest and most filter bits per key; -1 means no filter.
pub const BLOOM_BITS_RANGE: std::ops::RangeInclusive<i32> = -1..=1000;
/// Largest sequence number: the low 8 bits of a packed trailer hold the kind.
pub const SEQUENCE_MAX: u64 = (1 << 56) - 1;
