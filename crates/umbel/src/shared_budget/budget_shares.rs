//! [`Shares`]: how a number of bytes is divided among the parts of one store, or of several stores
//! together.

/// The least that works: below it the log, a memtable, a compaction and the reader of one table do
/// not fit side by side.
pub const LEAST: u64 = 6 << 20;
/// Kept out of all shares: memory for blocks and indexes comes in chunks of this size, of which one
/// is only partly filled.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Kept out of all shares too: what the process has besides that no part counts, program and stacks
/// and what the allocator keeps between. A share of the budget, up to a limit.
const BESIDES: (u64, u64) = (4, 32 << 20);
/// The most that all memtables take before the fullest is flushed, without being told.
pub const BUFFERS_MAX: u64 = 256 << 20;
/// The least size of a memtable, a table and a log segment that a small budget brings about.
const SIZE_LEAST: u64 = 256 << 10;
/// How many times larger tables of the last level may be, which holds nearly all of the data: what
/// every table takes, open or not, and what every edit of the manifest and every pick looks at, is
/// less by as much. A table of the level above then meets few of them, and takes its neighbours
/// along that lie within their bounds.
pub const LAST_TABLES_FACTOR: u64 = 4;
/// The least and the most that a compaction reads ahead in each source.
const AHEAD_BYTES: (u64, u64) = (16 << 10, 256 << 10);
/// Sources of a large compaction: level 0 just before writers wait, and one table of each level.
const SOURCES: u64 = 32;
/// What a table being written takes besides its filter's hashes and its index.
const WRITER_BYTES: u64 = 320 << 10;
/// One in so many bytes may be held by open cursors; from then on they park.
pub const CURSORS_SHARE: u64 = 8;
/// Bytes of a seat in the cache, for each byte of a block of 4 KiB: one in so many.
pub const SEATS_SHARE: u64 = 64;

/// What each part may take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// All of it.
    pub total: u64,
    /// What is kept free for what no part counts.
    pub besides: u64,
    /// What is divided among the parts.
    pub divided: u64,
    /// All memtables together, before some are flushed; twice that before writers wait.
    pub buffers: u64,
    /// A memtable, a table, or a log segment.
    pub size: u64,
    /// Indexes and filters.
    pub tables: u64,
    /// The least of the block cache.
    pub cache_least: u64,
    /// What a compaction reads ahead in each source.
    pub ahead: u64,
    /// One compaction, or a part of one.
    pub job: u64,
    /// All compactions together.
    pub jobs: u64,
    /// How many of these run at the same time.
    pub compactions: u64,
}

impl Shares {
    /// The shares of `total` bytes, of which `given` were given to the block cache and to
    /// memtables. REQUIRES: `total` is at least [`LEAST`] and `given` together.
    pub fn new(total: u64, given: u64) -> Shares {
        let besides = (total.saturating_sub(given) / BESIDES.0).min(BESIDES.1);
        let divided = total - CHUNK_BYTES - besides;
        let size = (divided / 16).max(SIZE_LEAST);
        let ahead = (divided / 8 / SOURCES).clamp(AHEAD_BYTES.0, AHEAD_BYTES.1);
        let last_table_bytes = size.saturating_mul(LAST_TABLES_FACTOR);
        let job = 12 * ahead + writing_bytes(last_table_bytes.min(64 << 20));
        Shares {
            total,
            besides,
            divided,
            buffers: (divided / 8).min(BUFFERS_MAX),
            size,
            tables: (divided / 2).min(divided.saturating_sub(given)),
            cache_least: divided / 32,
            ahead,
            job,
            jobs: divided / 8,
            compactions: (divided / 8 / job).clamp(1, 64),
        }
    }
}

/// The least total of which that many bytes are divided among the parts.
pub fn least_total(divided: u64) -> u64 {
    let (share, most) = BESIDES;
    let total = (divided + CHUNK_BYTES).saturating_mul(share).div_ceil(share - 1);
    total.min(divided + CHUNK_BYTES + most).max(LEAST)
}

/// What writing a table of `table_bytes` takes, about: its filter's hashes and its index, at
/// entries of 64 bytes, and what is collected for the next call.
pub fn writing_bytes(table_bytes: u64) -> u64 {
    WRITER_BYTES + table_bytes / 8 + table_bytes / 64
}

/// What merging so many sources into a table of `table_bytes` takes, about.
pub fn merging_bytes(sources: usize, ahead: u64, table_bytes: u64) -> u64 {
    (sources as u64).saturating_mul(ahead).saturating_add(writing_bytes(table_bytes))
}
