//! Every limit as a number. `docs/PROMISES.md` repeats them for users; a test compares the two.

/// Longest name of a stream, in bytes of UTF-8.
pub const STREAM_NAME_BYTES_MAX: usize = 1024;
/// Longest type of an event, in bytes of UTF-8.
pub const EVENT_TYPE_BYTES_MAX: usize = 1024;
/// Most bytes of data and metadata of one event.
pub const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes that one append may take in the log, all its events together.
pub const APPEND_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most events of one append.
pub const APPEND_EVENTS_MAX: usize = 100_000;
/// Most streams that one append may write to or check.
pub const APPEND_STREAMS_MAX: usize = 10_000;
/// Most bytes of the ACL in a stream's metadata, written without blanks.
pub const ACL_BYTES_MAX: usize = 64 * 1024;
/// Highest revision of an event that a user writes.
pub const REVISION_MAX: u64 = (1 << 63) - 2;
/// The revision of the event that ends a tombstoned stream.
pub const TOMBSTONE_REVISION: u64 = (1 << 63) - 1;
/// Highest position of an event.
pub const POSITION_MAX: u64 = (1 << 63) - 2;
/// Appends that expect any revision, or any that exists, are known again as long as no more events
/// than these were appended after them, to whatever streams,
pub const WINDOW_EVENTS: usize = 131_072;
/// and those took no more bytes of the log than these.
pub const WINDOW_BYTES: u64 = 16 * 1024 * 1024;
/// Largest file of the event log, in bytes. At most two of them are read to catch up when a store
/// is opened.
pub const CHUNK_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Bytes of a chunk's file behind which nothing is looked at: none is nearly as long.
pub const FILE_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Smallest file of the event log that can be asked for, in bytes.
pub const CHUNK_BYTES_MIN: u64 = 64 * 1024;
/// A restored store gives its next event a position so many bytes behind the room of the backup, so
/// that it gives no position which the original gave after the backup, up to so much of its log.
pub const RESTORE_GAP_BYTES: u64 = 1 << 40;
/// Longest regular expression of a filter, in bytes of UTF-8.
pub const EXPRESSION_BYTES_MAX: usize = 16 * 1024;
/// Most bytes that each part of an expression may take once it is compiled, about.
pub const EXPRESSION_COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// Most steps back that an expression may take for one name.
pub const EXPRESSION_BACKTRACKS_MAX: usize = 10_000;
/// Most look-arounds, references back and atomic groups of an expression, each counted as often as
/// it is repeated, and without a bound 16 times.
pub const EXPRESSION_LOOKS_MAX: u64 = 32;
/// Most repetitions that an expression with any of those asks for.
pub const EXPRESSION_REPETITIONS_MAX: u64 = 256;
/// Most prefixes of a filter.
pub const FILTER_PREFIXES_MAX: usize = 1000;
/// Most views whose entries a filtered read takes together; with more it looks at every event.
pub const FILTER_VIEWS_MAX: usize = 200;
/// A filtered read that finds nothing returns after so many milliseconds with how far it came.
pub const FILTER_STEP_MILLIS: u64 = 10;
/// Bytes of events after which a subscription's batch takes no more.
pub const BATCH_BYTES: usize = 1024 * 1024;
