//! Every limit as a number. `docs/PROMISES.md` repeats the limits for users; a test compares this
//! file with that page.

/// Longest name of a stream, in bytes of UTF-8.
pub const STREAM_NAME_BYTES_MAX: usize = 1024;
/// Longest type of an event, in bytes of UTF-8.
pub const EVENT_TYPE_BYTES_MAX: usize = 1024;
/// Most bytes of data and metadata together of one event.
pub const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes of the `$schema` members at the beginning of an event's metadata that the limit of
/// an event leaves out.
pub const EVENT_SCHEMA_BYTES_MAX: usize = 8 * 1024;
/// Most bytes that all events of one append together may take in the log.
pub const APPEND_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most events of one append.
pub const APPEND_EVENTS_MAX: usize = 100_000;
/// Most streams that one append may write to or check.
pub const APPEND_STREAMS_MAX: usize = 10_000;
/// Largest jump ahead of the wall clock, against the monotonic clock, that an open store believes,
/// in seconds.
pub const CLOCK_JUMP_SECONDS_MAX: u64 = 300;
/// Longest time from the last event, or the last believed time, to the wall clock that an open
/// believes, in seconds: three years.
pub const CLOCK_GAP_SECONDS_MAX: u64 = 94_608_000;
/// Most bytes of a stream's metadata that a client appends, and of the general ACLs.
pub const METADATA_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of the ACL in a stream's metadata, written without blanks.
pub const ACL_BYTES_MAX: usize = 64 * 1024;
/// Highest revision of an event that a user writes.
pub const REVISION_MAX: u64 = (1 << 63) - 2;
/// The revision of the event that ends a tombstoned stream.
pub const TOMBSTONE_REVISION: u64 = (1 << 63) - 1;
/// Highest position of an event.
pub const POSITION_MAX: u64 = (1 << 63) - 2;
/// A retry that expects any revision, or any existing one, is recognised if at most this many
/// events, in any streams, follow the append.
pub const WINDOW_EVENTS: usize = 131_072;
/// Maximum bytes of the log that the events after an append may take, if its retry is to be
/// recognised.
pub const WINDOW_BYTES: u64 = 16 * 1024 * 1024;
/// Largest file of the event log, in bytes. At most two files of this size are read to catch up
/// when a store is opened.
pub const CHUNK_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Maximum bytes of a chunk's file that are read; every valid file is far shorter.
pub const FILE_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Smallest configurable file of the event log, in bytes.
pub const CHUNK_BYTES_MIN: u64 = 64 * 1024;
/// Distance from the end of the backup's capacity to the next event of a restored store, in bytes.
/// The restored store reuses no positions of the original store, unless the original's log grew by
/// more than this after the backup.
pub const RESTORE_GAP_BYTES: u64 = 1 << 40;
/// Longest regular expression of a filter, in bytes of UTF-8.
pub const EXPRESSION_BYTES_MAX: usize = 16 * 1024;
/// Approximate maximum bytes of all parts of a compiled expression together.
pub const EXPRESSION_COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// Maximum backtracking steps of an expression for one name.
pub const EXPRESSION_BACKTRACKS_MAX: usize = 10_000;
/// Maximum look-arounds, back references and atomic groups of an expression, each counted as often
/// as it is repeated; an unbounded repetition counts 16 times.
pub const EXPRESSION_LOOKS_MAX: u64 = 32;
/// Maximum alternatives, groups and repetitions of an expression with any of those, outside of
/// look-aheads. Stored filters are exempt.
pub const EXPRESSION_PARTS_MAX: u64 = 256;
/// Maximum repetitions in an expression that has look-arounds, back references or atomic groups.
pub const EXPRESSION_REPETITIONS_MAX: u64 = 256;
/// Most prefixes of a filter.
pub const FILTER_PREFIXES_MAX: usize = 1000;
/// Maximum views whose entries a filtered read merges; with more views, the read examines every
/// event.
pub const FILTER_VIEWS_MAX: usize = 200;
/// Milliseconds after which a filtered read without a match returns its progress.
pub const FILTER_STEP_MILLIS: u64 = 10;
/// Bytes of events after which a batch of a subscription ends.
pub const BATCH_BYTES: usize = 1024 * 1024;
