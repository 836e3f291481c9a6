//! Every limit as a number. `docs/PROMISES.md` repeats the limits for users; a test compares the
//! page with these numbers.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Default for the longest value that is stored with the keys, in bytes; a longer value gets a file
/// of its own.
pub const INLINE_VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum bytes of keys and values in one batch, without values that have files of their own.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Maximum number of operations in one batch.
pub const BATCH_OPERATIONS_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of keyspaces in one store.
pub const KEYSPACES_MAX: usize = 1024;
/// Longest keyspace name, in bytes.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;
/// Longest marker that a flush of a keyspace without a WAL can store, in bytes.
pub const MARKER_BYTES_MAX: usize = 64 * 1024;
/// Number of levels of a keyspace, level 0 included.
pub const LEVELS: usize = 7;
/// Permitted filter bits per key; -1 means no filter.
pub const BLOOM_BITS_RANGE: std::ops::RangeInclusive<i32> = -1..=1000;
/// Largest sequence number: the low 8 bits of a packed trailer hold the kind.
pub const SEQUENCE_MAX: u64 = (1 << 56) - 1;
