//! [`BudgetShares`]: divides a memory budget among the memory uses of one store, or of several
//! stores together.

/// Smallest memory budget that works. A smaller budget has no memory for the WAL, a memtable, a
/// compaction and one table reader together.
pub const BUDGET_MIN: u64 = 6 << 20;
/// Bytes of a chunk of memory for blocks and indexes. One chunk is only partly filled, so the
/// shares exclude this many bytes.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Memory of the process that no use counts, such as code, stacks and allocator overhead, which the
/// shares exclude. It is one part in the first number of the budget, at most the second number.
const OVERHEAD: (u64, u64) = (4, 32 << 20);
/// Maximum of the default limit of all memtables together.
pub const BUFFERS_MAX: u64 = 256 << 20;
/// Smallest limit that a small budget puts on the size of a memtable, a table or a WAL segment.
const SIZE_MIN: u64 = 256 << 10;
/// Factor by which tables of the last level, which holds nearly all data, can be larger than other
/// tables. Fewer, larger tables take less memory for metadata, and make manifest edits and picks
/// cheaper. A table of the level above then overlaps few tables, and its compaction includes the
/// neighbours within their bounds.
pub const LAST_TABLES_FACTOR: u64 = 4;
/// Minimum and maximum of the bytes that a compaction reads ahead in each source.
const READAHEAD_BYTES: (u64, u64) = (16 << 10, 256 << 10);
/// Number of sources of a large compaction: the tables of level 0 just before writers stall, and
/// one table of each other level.
const SOURCES: u64 = 32;
/// Memory for writing one table, besides its filter's hashes and its index.
const WRITER_BYTES: u64 = 320 << 10;
/// Open cursors park if they take more than one part in this number of the budget.
pub const CURSORS_SHARE: u64 = 8;
/// A cache entry takes one part in this number of the bytes of a 4 KiB block.
pub const CACHE_ENTRIES_SHARE: u64 = 64;

/// Limit of each memory use, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetShares {
    /// The whole memory budget.
    pub total: u64,
    /// Bytes kept free for memory that no use counts.
    pub overhead: u64,
    /// Bytes divided among the memory uses.
    pub divided: u64,
    /// Bytes of all memtables together above which some are flushed. Writers wait at twice these
    /// bytes.
    pub memtables: u64,
    /// Maximum bytes of a memtable, a table or a WAL segment.
    pub size: u64,
    /// Bytes of indexes and filters.
    pub tables: u64,
    /// Minimum bytes of the block cache.
    pub cache_min: u64,
    /// Bytes that a compaction reads ahead in each source.
    pub readahead: u64,
    /// Bytes of one compaction, or of one part of a split compaction.
    pub job: u64,
    /// Bytes of all compactions together.
    pub jobs: u64,
    /// Maximum number of compactions that run at the same time.
    pub compactions: u64,
}

impl BudgetShares {
    /// Computes the shares of `total` bytes, of which `given` bytes are set aside for the block
    /// cache and memtables. REQUIRES: `total` is at least [`BUDGET_MIN`] and at least `given`.
    pub fn new(total: u64, given: u64) -> BudgetShares {
        let besides = (total.saturating_sub(given) / OVERHEAD.0).min(OVERHEAD.1);
        let divided = total - CHUNK_BYTES - besides;
        let size = (divided / 16).max(SIZE_MIN);
        let ahead = (divided / 8 / SOURCES).clamp(READAHEAD_BYTES.0, READAHEAD_BYTES.1);
        let last_table_bytes = size.saturating_mul(LAST_TABLES_FACTOR);
        let job = 12 * ahead + writing_bytes(last_table_bytes.min(64 << 20));
        BudgetShares {
            total,
            overhead: besides,
            divided,
            memtables: (divided / 8).min(BUFFERS_MAX),
            size,
            tables: (divided / 2).min(divided.saturating_sub(given)),
            cache_min: divided / 32,
            readahead: ahead,
            job,
            jobs: divided / 8,
            compactions: (divided / 8 / job).clamp(1, 64),
        }
    }
}

/// Smallest budget of which `divided` bytes remain for the memory uses.
pub fn total_min(divided: u64) -> u64 {
    let (share, overhead_max) = OVERHEAD;
    let total = (divided + CHUNK_BYTES).saturating_mul(share).div_ceil(share - 1);
    total.min(divided + CHUNK_BYTES + overhead_max).max(BUDGET_MIN)
}

/// Approximate memory for writing a table of `table_bytes` with entries of 64 bytes. The memory
/// holds the filter's hashes, the index, and the output collected for the next write call.
pub fn writing_bytes(table_bytes: u64) -> u64 {
    WRITER_BYTES + table_bytes / 8 + table_bytes / 64
}

/// Approximate memory for merging `sources` sources into a table of `table_bytes`.
pub fn merging_bytes(sources: usize, ahead: u64, table_bytes: u64) -> u64 {
    (sources as u64).saturating_mul(ahead).saturating_add(writing_bytes(table_bytes))
}
