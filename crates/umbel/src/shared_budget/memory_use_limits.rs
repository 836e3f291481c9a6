//! [`BudgetShares`]: division of a number of bytes among the memory uses of one store, or of
//! several stores together.

/// Smallest budget that works. Below it the WAL, a memtable, a compaction and the reader of one
/// table do not fit together.
pub const BUDGET_MIN: u64 = 6 << 20;
/// Excluded from all shares: blocks and indexes get memory in chunks of this size, and one chunk is
/// only partly filled.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Excluded from all shares: memory of the process that no use counts, such as code, stacks and
/// allocator overhead. A fraction of the budget, up to a limit.
const OVERHEAD: (u64, u64) = (4, 32 << 20);
/// Default limit of all memtables together, above which the largest one is flushed.
pub const BUFFERS_MAX: u64 = 256 << 20;
/// Smallest size of a memtable, a table and a WAL segment that a small budget imposes.
const SIZE_MIN: u64 = 256 << 10;
/// Factor by which tables of the last level may be larger; that level holds nearly all of the data.
/// It divides the memory of every table, open or not, and the work of each manifest edit and each
/// pick. A table of the level above then overlaps few of them, and its compaction includes its
/// neighbours within their bounds.
pub const LAST_TABLES_FACTOR: u64 = 4;
/// Bounds of the bytes that a compaction reads ahead in each source.
const READAHEAD_BYTES: (u64, u64) = (16 << 10, 256 << 10);
/// Sources of a large compaction: level 0 just before writers stall, and one table of each level.
const SOURCES: u64 = 32;
/// Memory for writing one table, besides its filter's hashes and its index.
const WRITER_BYTES: u64 = 320 << 10;
/// Divisor of the budget: open cursors may hold this fraction, and park above it.
pub const CURSORS_SHARE: u64 = 8;
/// Divisor for cache entries: bytes of an entry for each byte of a 4 KiB block.
pub const CACHE_ENTRIES_SHARE: u64 = 64;

/// Limit of each memory use, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetShares {
    /// The whole budget.
    pub total: u64,
    /// Bytes kept free for memory that no use counts.
    pub overhead: u64,
    /// Bytes divided among the uses.
    pub divided: u64,
    /// All memtables together, before some are flushed; writers wait at twice that.
    pub memtables: u64,
    /// A memtable, a table, or a WAL segment.
    pub size: u64,
    /// Indexes and filters.
    pub tables: u64,
    /// Minimum of the block cache.
    pub cache_min: u64,
    /// Read-ahead of a compaction in each source.
    pub readahead: u64,
    /// One compaction, or one part of a split compaction.
    pub job: u64,
    /// All compactions together.
    pub jobs: u64,
    /// Number of compactions that run at the same time.
    pub compactions: u64,
}

impl BudgetShares {
    /// The shares of `total` bytes, of which `given` are set aside for the block cache and
    /// memtables. REQUIRES: `total` is at least [`BUDGET_MIN`] and at least `given`.
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

/// Smallest total of which `divided` bytes remain for the uses.
pub fn total_min(divided: u64) -> u64 {
    let (share, overhead_max) = OVERHEAD;
    let total = (divided + CHUNK_BYTES).saturating_mul(share).div_ceil(share - 1);
    total.min(divided + CHUNK_BYTES + overhead_max).max(BUDGET_MIN)
}

/// Approximate memory for writing a table of `table_bytes` with entries of 64 bytes. It covers the
/// filter's hashes, the index, and the output collected for the next write call.
pub fn writing_bytes(table_bytes: u64) -> u64 {
    WRITER_BYTES + table_bytes / 8 + table_bytes / 64
}

/// Approximate memory for merging `sources` sources into a table of `table_bytes`.
pub fn merging_bytes(sources: usize, ahead: u64, table_bytes: u64) -> u64 {
    (sources as u64).saturating_mul(ahead).saturating_add(writing_bytes(table_bytes))
}
