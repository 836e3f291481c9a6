//! What a client may ask of the server, as numbers. `docs/server.md` repeats them for users.

use std::time::Duration;

use umbel_events::limits::EVENT_BYTES_MAX;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

/// Most connections at a time.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections that the system takes for the server while it is busy. Who finds no room among them
/// tries again after a second.
pub const BACKLOG: u32 = 4096;
/// Where there is no place for a new one, the connection that has had no call for the longest time
/// gives its own up, if that is as long as this.
pub const QUIET_TIME: Duration = Duration::from_secs(1);
/// Most calls that one connection may have open at a time.
pub const CONCURRENT_CALLS_MAX: u32 = 1024;
/// and on all connections together.
pub const OPEN_CALLS_MAX: usize = 16_384;
/// Most bytes of all headers of one request together.
pub const HEADER_BYTES_MAX: u32 = 32 << 10;
/// What a client is sending of a request that is answered already is taken and left out, so that it
/// sees the answer: up to so many bytes,
pub const UNASKED_BYTES_MAX: usize = 64 << 20;
/// for so long,
pub const UNASKED_TIME: Duration = Duration::from_secs(10);
/// and until nothing came for so long in the middle of a message or page
pub const UNASKED_QUIET: Duration = Duration::from_secs(1);
/// or between messages, where another one may never come.
pub const UNASKED_PAUSE: Duration = Duration::from_millis(100);
/// Most headers of one HTTP/1.1 request,
pub const HEADERS_MAX: usize = 64;
/// which must have come after so long.
pub const HEADERS_TIME: Duration = Duration::from_secs(10);
/// How long a new connection may take until its first bytes say which of both HTTPs it speaks.
pub const OPENING_TIME: Duration = Duration::from_secs(10);
/// How long a new connection may take until it is encrypted.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How often a server looks whether its certificates were replaced.
pub const CERTIFICATE_TIME: Duration = Duration::from_secs(10);
/// Bytes of an HTTP/1.1 request that are held at most: its head fits in, and no longer one.
pub const HTTP1_BUFFER_BYTES: usize = HEADER_BYTES_MAX as usize;
/// Pages that one connection may have been answered and not taken; further ones wait.
pub const PAGES_MAX: usize = 16;
/// Bytes that a client may send ahead of what the server has taken, for each call and connection.
pub const WINDOW_BYTES: u32 = 1 << 20;
/// A client that says nothing for so long is asked whether it is there,
pub const ASK_AFTER: Duration = Duration::from_secs(30);
/// and has so long to answer.
pub const ASK_TIME: Duration = Duration::from_secs(20);

/// Most batches of one call that are being written or whose answer was not yet taken.
pub const BATCHES_WRITTEN_MAX: usize = 256;
/// Most batches of one call that have begun and whose last part has not come.
pub const BATCHES_OPEN_MAX: usize = 64;
/// How long an append or a batch may take from its first part to its last.
pub const PARTS_TIME: Duration = Duration::from_secs(30);
/// Bytes that these batches together may hold before no more is taken.
pub const BATCHES_BYTES_MAX: usize = 32 << 20;

/// Bytes that the events of all appends together may hold which came and are not in the log yet,
pub const APPENDS_BYTES_MAX: usize = 256 << 20;
/// and the bytes that each event counts beside what it brings.
pub const EVENT_BYTES_BESIDE: usize = 128;
/// Bytes that messages may hold which have come in part, all of them together,
pub const RECEIVING_BYTES_MAX: usize = 256 << 20;
/// but for so many of each,
pub const RECEIVING_BYTES_FREE: usize = 16 << 10;
/// and how much longer one may take than an append: what waits for a whole one speaks first.
pub const MESSAGE_TIME_MORE: Duration = Duration::from_secs(1);
/// Bytes of a message that carries neither events nor values,
pub const SHORT_BYTES_MAX: usize = 1 << 20;
/// and bytes of memory that the parts of a longer one may take beside what they say.
pub const PARTS_BYTES_MAX: usize = 192 << 20;
/// Data and metadata of an event are copied out of the message in which they came, unless they are
/// so long: then the message is kept for them, and counted in their place.
pub const LONG_BYTES: usize = MESSAGE_BYTES_MAX / 2;

/// Bytes of the text of a status; what is longer is cut.
pub const STATUS_BYTES_MAX: usize = 8 << 10;
/// Bytes of a status after which it tells of no more checks that do not hold: clients take no
/// trailers without end.
pub const VIOLATIONS_BYTES_MAX: usize = 4 << 10;

/// Different expressions that the filters of open reads and subscriptions run.
pub const EXPRESSIONS_MAX: usize = 256;
/// Most events that a read takes from the store at once,
pub const PAGE_EVENTS_MAX: usize = 512;
/// and the bytes of events after which it takes no more.
pub const PAGE_BYTES: usize = 1 << 20;
/// Reads of no more events of a stream than this are done where they are asked for, without a
/// thread of their own, and step over no more that have expired; so are appends of no more,
pub const QUICK_EVENTS_MAX: usize = 16;
/// with no more bytes in them,
pub const QUICK_BYTES_MAX: usize = 64 << 10;
/// as long as none took longer than this: its events were in no cache.
pub const QUICK_TIME: Duration = Duration::from_millis(1);
/// After one that did, all go to threads for so long.
pub const QUICK_PAUSE: Duration = Duration::from_millis(100);
/// What was read for clients that have not taken it holds no more than this, all of it together.
/// Every thread that reads finds room for the largest page.
pub const UNREAD_BYTES_MAX: usize = BLOCKING_THREADS_MAX * UNREAD_PAGE_BYTES;
/// The largest page: its last event may be as large as any, and so may the link to it.
pub const UNREAD_PAGE_BYTES: usize = PAGE_BYTES + EVENT_BYTES_MAX + (EVENT_BYTES_MAX >> 3);
/// What an event in it counts beside its names, data and metadata.
pub const ANSWER_BYTES_BESIDE: usize = 192;
/// Room for a list in one answer; what is longer counts beside it.
pub const LIST_BYTES: usize = 2 << 20;
/// Where there is no room, connections end that took nothing of a page for so long,
pub const UNREAD_TIME: Duration = Duration::from_secs(5);
/// as many as give the room that is waited for; each who waits looks after so long,
pub const ROOM_TIME: Duration = Duration::from_millis(250);
/// and all of them together after no less.
pub const LOOK_TIME: Duration = Duration::from_millis(10);
/// A read that leaves events out looks at no more than these before it looks whether anybody still
/// waits,
pub const EXAMINED_MAX: usize = 8192;
/// and for no longer than this, but for one name that an expression takes long for.
pub const PAGE_TIME: Duration = Duration::from_millis(20);
/// How many events a filter's window has where the client does not say.
pub const FILTER_WINDOW_EVENTS: u32 = 32;
/// A filtered subscription is told how far it is so long after it last was, if it came further.
pub const CHECKPOINT_TIME: Duration = Duration::from_secs(1);

/// Most groups of consumers,
pub const GROUPS_MAX: usize = 1000;
/// and the bytes of the name of one.
pub const GROUP_NAME_BYTES_MAX: usize = 512;
/// Most consumers of one group.
pub const GROUP_CONSUMERS_MAX: usize = 1000;
/// Most events that a group's settings may ask it to hold, and a consumer to have on the way.
pub const GROUP_EVENTS_MAX: usize = 10_000;
/// Bytes of the events that a group holds after which it reads no more,
pub const GROUP_BYTES: usize = 16 << 20;
/// and those that all groups together hold: who finds no room waits.
pub const GROUPS_BYTES_MAX: usize = 256 << 20;
/// While somebody waits, a group lets go of events that nobody was sent for so long, and of those
/// that consumers work on, and reads them again later;
pub const GROUP_IDLE_TIME: Duration = Duration::from_secs(5);
/// and the connection of a consumer ends that took nothing of what it is sent for so long.
pub const GROUP_UNTAKEN_TIME: Duration = Duration::from_secs(30);
/// Messages to a group that wait at most.
pub const GROUP_MESSAGES_MAX: usize = 64;
/// Most events that are parked with one append.
pub const PARKED_AT_ONCE: usize = 256;
/// When a group tries again what the store refused.
pub const GROUP_RETRY_TIME: Duration = Duration::from_secs(1);
/// How often a group may look for a checkpoint that is due.
pub const GROUP_TICK: Duration = Duration::from_millis(100);

/// The longest value of a key over the network.
pub const KV_VALUE_BYTES_MAX: usize = EVENT_BYTES_MAX;
/// Most keys of one `MultiGet`, whose values together have no more bytes than one alone may,
pub const KV_KEYS_MAX: usize = 1000;
/// operations of one batch,
pub const KV_OPERATIONS_MAX: usize = 100_000;
/// conditions of one,
pub const KV_CONDITIONS_MAX: usize = 1000;
/// and bytes of all of its keys and values.
pub const KV_BATCH_BYTES_MAX: usize = 16 << 20;
/// Most writes that are made durable by one sync.
pub const WRITES_TOGETHER_MAX: usize = 1024;
/// Most keys that a scan takes from the store at once; see [`PAGE_BYTES`], too.
pub const SCAN_ENTRIES_MAX: usize = 4096;
/// How long a scan may take: what it shows is kept in the store meanwhile.
pub const SCAN_TIME: Duration = Duration::from_secs(600);
/// Most watches at a time.
pub const WATCHES_MAX: usize = 1000;
/// Writes that wait for one of them at most,
pub const WATCH_WRITES_MAX: usize = 4096;
/// and their bytes, but for one write that has more alone;
pub const WATCH_BYTES_MAX: usize = 4 << 20;
/// and the bytes that wait for all of them together.
pub const WATCHES_BYTES_MAX: usize = 256 << 20;

/// Most threads that read the store and delete streams.
pub const BLOCKING_THREADS_MAX: usize = 32;

/// Bytes of a request to change something from the console,
pub const CONSOLE_BYTES_MAX: usize = 1 << 20;
/// and the events and the names that one of its pages shows.
pub const CONSOLE_EVENTS_MAX: u64 = 100;
/// See [`CONSOLE_EVENTS_MAX`].
pub const CONSOLE_NAMES_MAX: usize = 200;

/// How often a client may be told what the server does.
pub const STATS_TIME_MIN: Duration = Duration::from_millis(100);

/// How many streams' rights are known without asking the store, twice over,
pub const ACLS_KEPT: usize = 8192;
/// and the bytes of the names in one that is kept.
pub const ACL_BYTES_KEPT: usize = 4 << 10;
/// and how many users.
pub const USERS_KEPT: usize = 1024;
/// How long a password that was found right is known by its keyed hash,
pub const CREDENTIALS_TIME: Duration = Duration::from_secs(300);
/// one that was found wrong,
pub const WRONG_TIME: Duration = Duration::from_secs(1);
/// and how many of both, twice over.
pub const CREDENTIALS_KEPT: usize = 1024;
/// How many different passwords may wait to be looked at.
pub const CREDENTIALS_WAITING: usize = 256;

/// A call whose answer begins later than this is slow, and told of.
pub const SLOW_TIME: Duration = Duration::from_secs(1);
/// Lines about calls that failed or were slow in one second; those that are more are counted.
pub const CALL_LINES_MAX: u32 = 100;

/// How long calls that are being served may go on once the server stops.
pub const DRAIN_TIME: Duration = Duration::from_secs(5);
