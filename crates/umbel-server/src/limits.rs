//! Limits on what a client may request. `docs/reference/server.md` repeats them for users.

use std::time::Duration;

use umbel_events::limits::EVENT_BYTES_MAX;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

/// Maximum number of connections.
pub const CONNECTIONS_MAX: usize = 4096;
/// Length of the system's accept queue while the server is busy. A client that finds the queue full
/// retries after a second.
pub const BACKLOG: u32 = 4096;
/// Minimum idle time of a connection that the server ends to free a slot; the connection that is
/// idle longest is ended.
pub const IDLE_CONNECTION_TIME: Duration = Duration::from_secs(1);
/// Maximum number of open calls on one connection.
pub const CONCURRENT_CALLS_MAX: u32 = 1024;
/// Maximum number of open calls on all connections together.
pub const OPEN_CALLS_MAX: usize = 16_384;
/// Maximum bytes of all headers of one request.
pub const HEADER_BYTES_MAX: u32 = 32 << 10;
/// Maximum bytes of a request that are read and discarded after its response, so that the client
/// sees the response.
pub const DISCARD_BYTES_MAX: usize = 64 << 20;
/// Time limit for discarding the remaining bytes of a request.
pub const DISCARD_TIME: Duration = Duration::from_secs(10);
/// Idle time that ends the discarding of a request in the middle of a message or page.
pub const DISCARD_IDLE_TIME: Duration = Duration::from_secs(1);
/// Idle time that ends the discarding of a request between messages, where no further message may
/// follow.
pub const DISCARD_MESSAGE_GAP: Duration = Duration::from_millis(100);
/// Maximum number of headers of one HTTP/1.1 request.
pub const HEADERS_MAX: usize = 64;
/// Time limit for the arrival of the headers of one HTTP/1.1 request.
pub const HEADERS_TIME: Duration = Duration::from_secs(10);
/// Time limit for the first bytes of a connection, which show its HTTP version.
pub const PREFACE_TIME: Duration = Duration::from_secs(10);
/// Time limit of the TLS handshake.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Interval of the checks for replaced certificates.
pub const CERTIFICATE_TIME: Duration = Duration::from_secs(10);
/// Time before a certificate's end from which the log warns.
pub const EXPIRY_WARNING_TIME: Duration = Duration::from_hours(7 * 24);
/// Maximum bytes of an HTTP/1.1 request in the buffer; the longest allowed head fits exactly.
pub const HTTP1_BUFFER_BYTES: usize = HEADER_BYTES_MAX as usize;
/// Maximum number of response pages on one connection that the client has not taken yet; further
/// pages wait.
pub const PAGES_MAX: usize = 16;
/// Flow-control window in bytes, for each call and each connection.
pub const WINDOW_BYTES: u32 = 1 << 20;
/// Idle time before a keepalive ping.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit for the answer to a keepalive ping.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of batches of one call that are being written or whose response is not yet taken.
pub const BATCHES_IN_FLIGHT_MAX: usize = 256;
/// Maximum number of incomplete batches of one call.
pub const BATCHES_OPEN_MAX: usize = 64;
/// Time limit of an append or a batch from its first part to its last.
pub const PARTIAL_APPEND_TIME: Duration = Duration::from_secs(30);
/// A call stops reading when its batches, open or being written, have this many bytes.
pub const BATCHES_BYTES_MAX: usize = 32 << 20;

/// Byte limit of the events of all appends together that are not in the log yet.
pub const APPENDS_BYTES_MAX: usize = 256 << 20;
/// Bytes that count for each event besides its content.
pub const EVENT_OVERHEAD_BYTES: usize = 128;
/// Byte limit of all partially received messages together.
pub const RECEIVE_BYTES_MAX: usize = 256 << 20;
/// Bytes of each partially received message that do not count.
pub const RECEIVE_BYTES_FREE: usize = 16 << 10;
/// Time without a received byte after which a partially received message is dropped, if another
/// message finds no quota.
pub const STALLED_MESSAGE_TIME: Duration = Duration::from_secs(5);
/// Bytes that a partially received message must grow by in each [`MESSAGE_GROWTH_TIME`]; otherwise
/// it is dropped, too, if another message finds no quota.
pub const MESSAGE_GROWTH_BYTES: usize = 4 << 10;
/// Time in which a partially received message must grow by [`MESSAGE_GROWTH_BYTES`].
pub const MESSAGE_GROWTH_TIME: Duration = Duration::from_secs(10);
/// Time after which a complete message that its call does not take is dropped, if another message
/// finds no quota. A call takes no message while its client reads no responses.
pub const UNTAKEN_MESSAGE_TIME: Duration = Duration::from_secs(1);
/// Time by which the limit of a message exceeds the limit of an append, so that the append's own
/// timeout comes first.
pub const MESSAGE_EXTRA_TIME: Duration = Duration::from_secs(1);
/// Maximum bytes of a message without events or values, and of the other fields of a message with
/// events.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of values in the properties of one record, with the values in other values.
pub const PROPERTY_VALUES_MAX: usize = 100_000;
/// Bytes of a message up to which it is decoded where it was received, which takes at most 2 ms. A
/// thread that may be busy decodes longer ones.
pub const INLINE_MESSAGE_BYTES_MAX: usize = 32 << 10;
/// Bytes of a message from which it is a long one. Long messages are decoded one after the other,
/// and shorter ones do not wait for them.
pub const LONG_MESSAGE_BYTES_MIN: usize = 1 << 20;
/// Maximum number of messages of each of these sizes that are decoded at the same time; others wait
/// for their turn. One thread decodes more than the appender can write.
pub const DECODED_MESSAGES_MAX: usize = 1;
/// Minimum size of an event's field that is not copied but keeps its whole message in memory. The
/// whole message then counts.
pub const LARGE_FIELD_BYTES: usize = MESSAGE_BYTES_MAX / 2;

/// Maximum bytes of the text of a status; a longer text is truncated.
pub const STATUS_BYTES_MAX: usize = 8 << 10;
/// Bytes of a status after which it lists no more failed checks, since clients limit trailers.
pub const VIOLATIONS_BYTES_MAX: usize = 4 << 10;

/// Maximum number of different filter expressions of open reads and subscriptions.
pub const FILTER_EXPRESSIONS_MAX: usize = 256;
/// Maximum number of events that a read takes from the store at once.
pub const PAGE_EVENTS_MAX: usize = 512;
/// Bytes of events after which a page is full.
pub const PAGE_BYTES: usize = 1 << 20;
/// Maximum number of events of a stream read that runs inline, and of expired events that it skips.
/// An inline append has at most this many events, too.
pub const INLINE_EVENTS_MAX: usize = 16;
/// Maximum bytes of an inline append.
pub const INLINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the events of an append from which it is a long one.
pub const LONG_APPEND_BYTES_MIN: usize = 16 << 10;
/// Maximum bytes of all long appends together between their submission and their acknowledgement;
/// a longer append is alone. Others wait, so that short appends need not wait for them.
pub const LONG_APPENDS_BYTES_MAX: usize = 1 << 20;
/// The same maximum while short appends arrive.
pub const LONG_APPENDS_BESIDE_SHORT_BYTES_MAX: usize = 256 << 10;
/// Time after a short append in which further ones are expected.
pub const SHORT_APPENDS_TIME: Duration = Duration::from_millis(20);
/// Bytes of stream metadata that the thread of an append checks itself. Other threads check longer
/// metadata before.
pub const UNCHECKED_METADATA_BYTES_MAX: usize = 16 << 10;
/// Number of events, streams and checks of an append whose names, types and sizes the appender
/// checks itself. Other threads check longer appends before.
pub const UNCHECKED_PARTS_MAX: usize = 4096;
/// Duration after which an inline read counts as slow, since its events were in no cache.
pub const INLINE_TIME_MAX: Duration = Duration::from_millis(1);
/// Pause of inline reads after a slow inline read.
pub const INLINE_PAUSE: Duration = Duration::from_millis(100);
/// Byte limit of all data that was read but not yet taken by clients. The limit lets every reading
/// thread read the largest page.
pub const OUTBOUND_BYTES_MAX: usize = BLOCKING_THREADS_MAX * PAGE_BYTES_MAX;
/// Number of responses that a task builds or encodes before it yields to other tasks.
pub const POLL_MESSAGES: usize = 128;
/// Bytes of responses that a task builds or encodes before it yields to other tasks.
pub const POLL_BYTES: usize = 256 << 10;
/// Bytes of the largest page, whose last event and the link to that event both have the maximum
/// size.
pub const PAGE_BYTES_MAX: usize = PAGE_BYTES + EVENT_BYTES_MAX + (EVENT_BYTES_MAX >> 3);
/// Bytes that count for an event in a page besides its names, data and metadata.
pub const RESPONSE_OVERHEAD_BYTES: usize = 192;
/// Reservation for a list in one response; the bytes of a longer list count in addition.
pub const LIST_BYTES: usize = 2 << 20;
/// Time without progress after which a connection may be ended to free quota.
pub const UNREAD_TIME: Duration = Duration::from_secs(5);
/// Interval at which each waiting call checks for a connection to end.
pub const QUOTA_WAIT_TIME: Duration = Duration::from_millis(250);
/// Minimum interval of the checks for a connection to end, of all waiting calls together.
pub const QUOTA_SCAN_TIME_MIN: Duration = Duration::from_millis(10);
/// Maximum number of events that a filtered read examines before it checks whether its client still
/// waits.
pub const EXAMINED_EVENTS_MAX: usize = 8192;
/// Maximum number of hidden events that the first page of a read passes.
pub const HIDDEN_EVENTS_MAX: usize = 256;
/// Processor time after which a later page of a read ends, exceeded only by a single slow match of
/// an expression.
pub const PAGE_CPU_TIME: Duration = Duration::from_millis(2);
/// Default number of events in a filter's window.
pub const FILTER_WINDOW_EVENTS: u32 = 32;
/// Minimum interval between checkpoints of a filtered subscription that has advanced.
pub const CHECKPOINT_TIME: Duration = Duration::from_secs(1);

/// Maximum number of consumer groups.
pub const GROUPS_MAX: usize = 10_000;
/// Number of groups whose statistics are read at once.
pub const GROUP_CHUNK: usize = 128;
/// Memory of a group's statistics, for which a list of groups reserves quota.
pub const GROUP_INFO_BYTES: usize = 1 << 10;
/// Maximum bytes of the name of a consumer group.
pub const GROUP_NAME_BYTES_MAX: usize = 512;
/// Maximum number of consumers of one group.
pub const GROUP_CONSUMERS_MAX: usize = 1000;
/// Upper limit of a group's buffer settings, and of a consumer's events in flight.
pub const GROUP_EVENTS_MAX: usize = 10_000;
/// Bytes of the events that a group holds after which it reads no more.
pub const GROUP_BYTES: usize = 16 << 20;
/// Byte limit of the events that all groups together hold; a group without quota waits.
pub const GROUPS_BYTES_MAX: usize = 256 << 20;
/// Time after which a group evicts the payloads of unsent events and of events in flight, if
/// another group waits for quota. The group reads these events again later.
pub const GROUP_IDLE_TIME: Duration = Duration::from_secs(5);
/// Time after which the server ends the connection of a consumer that takes no events, if a group
/// waits for quota.
pub const GROUP_STALLED_TIME: Duration = Duration::from_secs(30);
/// Maximum number of commands queued for a group.
pub const GROUP_MESSAGES_MAX: usize = 64;
/// Bytes of the log that a group on all events skips before it stores a checkpoint.
pub const GROUP_SKIPPED_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of events that one append parks.
pub const PARK_BATCH_EVENTS_MAX: usize = 256;
/// Delay before a group retries a failed operation of the store.
pub const GROUP_RETRY_TIME: Duration = Duration::from_secs(1);
/// Minimum interval of a group's checks for a due checkpoint.
pub const GROUP_TICK: Duration = Duration::from_millis(100);

/// Maximum bytes of a value over the network.
pub const KV_VALUE_BYTES_MAX: usize = EVENT_BYTES_MAX;
/// Maximum number of keys of one `MultiGet`. The values of a `MultiGet` together have the limit of
/// a single value.
pub const KV_KEYS_MAX: usize = 1000;
/// Maximum number of operations of one batch.
pub const KV_OPERATIONS_MAX: usize = 100_000;
/// Maximum number of conditions of one batch.
pub const KV_CONDITIONS_MAX: usize = 1000;
/// Maximum bytes of all keys and values of one batch.
pub const KV_BATCH_BYTES_MAX: usize = 16 << 20;
/// Number of keyspaces up to which users outside `$admins` may create further ones.
pub const OPERATOR_KEYSPACES_MAX: usize = 512;
/// Maximum number of writes in one group sync.
pub const GROUP_SYNC_WRITES_MAX: usize = 1024;
/// Maximum number of keys that a scan takes from the store at once; see also [`PAGE_BYTES`].
pub const SCAN_ENTRIES_MAX: usize = 4096;
/// Time limit of a scan, whose snapshot keeps old versions of entries in the store until it ends.
pub const SCAN_TIME: Duration = Duration::from_secs(600);
/// Maximum number of watches.
pub const WATCHES_MAX: usize = 1000;
/// Maximum number of writes queued for one watch.
pub const WATCH_WRITES_MAX: usize = 4096;
/// Maximum bytes queued for one watch, except for a single larger write.
pub const WATCH_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes queued for all watches together.
pub const WATCHES_BYTES_MAX: usize = 256 << 20;

/// Maximum number of blocking threads, which read the store and delete streams.
pub const BLOCKING_THREADS_MAX: usize = 32;
/// Maximum number of pages in the read pool that wait for the disk, besides one page for each
/// processor but one.
pub const SLOW_PAGES_MAX: usize = 8;

/// Maximum bytes of a console request to redact events.
pub const REDACTION_BYTES_MAX: usize = 256 << 10;
/// Maximum bytes of a console request that appends an event.
pub const CONSOLE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of another console request that changes something.
pub const CONSOLE_ACTION_BYTES_MAX: usize = 64 << 10;
/// Maximum number of console requests with a body in memory.
pub const CONSOLE_REQUESTS_MAX: usize = 32;
/// Maximum number of times to acknowledgements that a group keeps for each consumer.
pub const ACK_TIMES_MAX: usize = 1000;
/// Interval of the checks of message timeouts, as in KurrentDB.
pub const TIMEOUT_CHECK_TIME: Duration = Duration::from_secs(1);
/// Maximum bytes of the name that a client gives its connection.
pub const CONNECTION_NAME_BYTES_MAX: usize = 256;
/// Maximum number of events on a page of the console.
pub const CONSOLE_EVENTS_MAX: u64 = 100;
/// Maximum number of events that one request of a search examines.
pub const SEARCH_EVENTS_MAX: usize = 32_768;
/// Bytes of examined events after which a request of a search ends.
pub const SEARCH_BYTES_MAX: usize = 64 << 20;
/// Maximum number of groups on a page of the console.
pub const CONSOLE_GROUPS_MAX: usize = 100;
/// Maximum number of events that the live tail of the console shows at once.
pub const LIVE_TAIL_EVENTS_MAX: u64 = 500;
/// Maximum number of pages without visible events that a page of the console reads.
pub const CONSOLE_PAGES_MAX: usize = 64;
/// Maximum number of names on a page of the console, unless the request says another number.
pub const CONSOLE_NAMES_MAX: usize = 200;
/// Maximum number of names that a request of a page can ask for.
pub const LISTED_NAMES_MAX: usize = 1000;

/// Minimum interval between two statistics that a client receives.
pub const STATS_TIME_MIN: Duration = Duration::from_millis(100);

/// Number of streams in each of the two generations of the ACL cache.
pub const CACHED_ACLS_MAX: usize = 8192;
/// Maximum bytes of the cached ACLs in each of the two generations. The longest ACL fits.
pub const CACHED_ACLS_BYTES_MAX: usize = 32 << 20;
/// Number of users in each of the two generations of the user cache.
pub const CACHED_USERS_MAX: usize = 1024;
/// Maximum bytes of those users in each of the two generations. The largest user fits.
pub const CACHED_USERS_BYTES_MAX: usize = 16 << 20;
/// Time for which an unused correct password is cached by its keyed hash.
pub const CREDENTIALS_TIME: Duration = Duration::from_secs(300);
/// Time for which a wrong password is cached.
pub const WRONG_CREDENTIALS_TIME: Duration = Duration::from_secs(1);
/// Number of passwords in each of the two generations of the cache of verified passwords.
pub const CACHED_CREDENTIALS_MAX: usize = 1024;
/// Maximum number of different passwords that wait for verification.
pub const PENDING_CREDENTIALS_MAX: usize = 512;
/// Maximum number of different passwords from one address that wait for verification.
pub const ADDRESS_PENDING_CREDENTIALS_MAX: usize = 256;
/// Maximum number of different passwords of one connection that wait for verification.
pub const CONNECTION_PENDING_CREDENTIALS_MAX: usize = 4;

/// A call whose first response takes longer than this counts as slow and is logged.
pub const SLOW_CALL_TIME: Duration = Duration::from_secs(1);
/// Maximum number of log lines about failed or slow calls per second; further lines are only
/// counted.
pub const ACCESS_LOG_LINES_MAX: u32 = 100;

/// Maximum number of log lines about refused calls without valid credentials per
/// [`ANONYMOUS_LOG_TIME`]; further lines are only counted.
pub const ANONYMOUS_LOG_LINES_MAX: u32 = 60;
/// Period of the limit of log lines about refused calls without valid credentials.
pub const ANONYMOUS_LOG_TIME: Duration = Duration::from_secs(60);

/// Maximum number of log lines about failed logins per [`FAILED_LOGIN_LOG_TIME`]; further ones are
/// only counted.
pub const FAILED_LOGIN_LINES_MAX: u32 = 60;
/// Period of the limit of log lines about failed logins.
pub const FAILED_LOGIN_LOG_TIME: Duration = Duration::from_secs(60);

/// Time limit of running calls after the server begins to stop.
pub const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Maximum bytes of a request of the HTTP API, other than an append.
pub const API_REQUEST_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of an event's data or metadata in a page of the HTTP API.
pub const API_DATA_BYTES_MAX: usize = 1 << 20;
/// Number of users after which a list of the HTTP API ends.
pub const API_USERS_MAX: usize = 1000;
/// Time limit of a read of the HTTP API.
pub const API_READ_TIME: Duration = Duration::from_secs(30);
/// Minimum limit of the bytes that a backup copies a second. With a lower limit a backup would
/// prevent others for hours.
pub const BACKUP_RATE_MIN: u64 = 64 << 10;
/// Time within which a promotion is answered. The node goes on to try after it. It is below the
/// time that the command line waits for an answer.
pub const PROMOTION_TIME: Duration = Duration::from_secs(45);
/// Number of ended scavenges, and of backups, whose outcome the server keeps.
pub const OUTCOMES_MAX: usize = 16;
/// Number of scavenges, and of backups, in the history that the store keeps.
pub const HISTORY_MAX: usize = 100;
/// Maximum bytes of the reason of an outcome in the history.
pub const WORK_ERROR_BYTES_MAX: usize = 2000;
/// Maximum bytes of an event of the history.
pub const WORK_RECORD_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a cron expression.
pub const SCHEDULE_BYTES_MAX: usize = 200;
/// Maximum bytes of an event with the settings of auto-scavenge.
pub const AUTO_SCAVENGE_BYTES_MAX: usize = 16 << 10;
/// Maximum bytes of a client's text in an error of the HTTP API.
pub const ERROR_BYTES_MAX: usize = 300;

/// Maximum number of consumer groups with metrics of their own.
pub const METRIC_GROUPS_MAX: usize = 500;
/// Maximum bytes of the names of those groups and their streams.
pub const METRIC_GROUP_NAME_BYTES_MAX: usize = 128 << 10;
/// Time for which the metrics of consumer groups are served again.
pub const GROUP_READING_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit of a reading of all consumer groups.
pub const GROUP_READING_TIME: Duration = Duration::from_secs(2);

/// Maximum number of spans, and of log lines, that wait for their export.
pub const OTLP_QUEUE_RECORDS_MAX: usize = 4096;
/// Maximum bytes of the spans, and of the log lines, that wait for their export.
pub const OTLP_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of spans or log lines in one export.
pub const OTLP_BATCH_RECORDS: usize = 512;
/// Time after which an incomplete batch is exported.
pub const OTLP_BATCH_TIME: Duration = Duration::from_secs(1);
/// Time for which the export of a batch is retried.
pub const OTLP_RETRY_TIME: Duration = Duration::from_secs(300);
/// First and longest pause before a retry.
pub const OTLP_RETRY_PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Time limit of the last exports when the server stops.
pub const OTLP_SHUTDOWN_TIME: Duration = Duration::from_secs(3);
/// Maximum bytes of a collector's response.
pub const OTLP_RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of the message of an exported log line.
pub const OTLP_MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Pause between two runs of a continuous backup, unless the operator sets another one.
pub const BACKUP_INTERVAL: Duration = Duration::from_secs(10);
/// Longest pause after a failed run of a continuous backup, unless the interval is longer.
pub const BACKUP_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time for which one run of a continuous backup repeats a request.
pub const BACKUP_RETRY_TIME: Duration = Duration::from_secs(15);
/// Time for which a start waits for the first answer of the object store.
pub const BACKUP_START_TIME: Duration = Duration::from_secs(5);
/// Time limit at exit for the last run of a continuous backup.
pub const BACKUP_LAST_RUN_TIME: Duration = Duration::from_secs(5);
/// Time limit at exit for the end of a run that was cancelled.
pub const BACKUP_CANCEL_TIME: Duration = Duration::from_millis(500);
/// Time between two searches for objects of a continuous backup that something else deleted. The
/// first one follows the first successful run.
pub const LOST_OBJECTS_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Time after a failed search until the next one.
pub const LOST_OBJECTS_RETRY_TIME: Duration = Duration::from_secs(3600);
/// Number of retentions of a continuous backup in the time that it keeps.
pub const RETENTIONS_PER_AGE: u32 = 48;
/// Least time between two retentions of a continuous backup.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(3600);
/// Longest time between two retentions of a continuous backup.
pub const RETENTION_INTERVAL_MAX: Duration = Duration::from_secs(12 * 3600);
