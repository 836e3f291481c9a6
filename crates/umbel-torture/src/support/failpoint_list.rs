//! Failpoints of the product that the campaigns activate, one at a time. A campaign can be trusted
//! only if it detects each of its failpoints.
//!
//! Failpoints of the existence filter are in the list of that crate's tests. `cargo xtask tidy`
//! compares the lists with the product.

/// A failpoint and what goes wrong while it is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failpoint {
    pub name: &'static str,
    pub fault: &'static str,
}

const fn failpoint(name: &'static str, fault: &'static str) -> Failpoint {
    Failpoint { name, fault }
}

const SHOW_BEFORE_DURABLE: Failpoint = failpoint(
    "events-show-before-durable",
    "readers of a synced event store see an append before it is durable",
);
const REUSE_POSITIONS: Failpoint =
    failpoint("events-reuse-positions", "positions that a power cut took go to other events");
const FORGET_RETRIES: Failpoint =
    failpoint("events-forget-retries", "a retry of an append is not recognised");
const RETRY_RETURNS_NEW: Failpoint = failpoint(
    "append-retry-return-new-revision",
    "a retry returns a new revision instead of that of the first attempt",
);
const OMIT_DETAIL: Failpoint =
    failpoint("conflict-omit-detail", "a version conflict does not name the current revision");
const SWAP_RESULTS: Failpoint =
    failpoint("batch-swap-results", "the results of two batches of a call are swapped");

/// Faults in the key-value store.
pub const ENGINE: [Failpoint; 12] = [
    failpoint("checksum-constant", "every checksum is the same number"),
    failpoint(
        "compaction-drop-tombstones-early",
        "a compaction drops tombstones above the bottommost level",
    ),
    failpoint(
        "compaction-replace-inputs-early",
        "the first step of a compaction replaces the inputs of later steps",
    ),
    failpoint(
        "compaction-remove-overlapped-tables",
        "a table is removed of which a range tombstone hides only the first key",
    ),
    failpoint("recovery-reuse-sequence-numbers", "recovery reuses sequence numbers"),
    failpoint("recovery-reuse-file-ids", "recovery reuses file ids"),
    failpoint("compaction-forget-snapshots", "a compaction drops versions that snapshots need"),
    failpoint(
        "blob-remove-under-reader",
        "the file of a long value is removed while a reader may still use it",
    ),
    failpoint(
        "skip-spans-ignore-puts",
        "a put into a known empty range stays hidden from cursors that skip the range",
    ),
    failpoint(
        "existence-forget-replayed-keys",
        "recovery does not add replayed keys to the existence filter of their keyspace",
    ),
    failpoint(
        "existence-walk-skip-memtables",
        "the existence filter of a keyspace is built from tables only",
    ),
    failpoint(
        "existence-trust-uncovered-filter",
        "a lookup trusts an existence filter that does not cover all tables of the keyspace",
    ),
];

/// Faults in the event store.
pub const EVENT_STORE: [Failpoint; 10] = [
    SHOW_BEFORE_DURABLE,
    REUSE_POSITIONS,
    failpoint("events-skip-log-sync", "the index is flushed before its part of the log is durable"),
    failpoint("events-accept-events-after-gap", "events after a gap in the event log count"),
    FORGET_RETRIES,
    failpoint("events-lose-recent-ids", "an open does not read the ids of the newest events"),
    failpoint(
        "events-forget-replayed-heads",
        "catching up ignores earlier events that are not in the index yet",
    ),
    failpoint(
        "events-forget-pending-heads",
        "an append ignores earlier ones that are not in the index yet",
    ),
    failpoint("events-ignore-expected-version", "the expected version is not checked"),
    failpoint(
        "events-index-claim-whole-log",
        "each flush records that the index holds all of the log",
    ),
];

/// Faults in subscriptions, filters and views of the event store.
pub const SUBSCRIPTIONS: [Failpoint; 12] = [
    failpoint("subscription-skip-event", "a subscription skips the event after a full batch"),
    failpoint(
        "subscription-repeat-event",
        "a subscription that starts after a position also delivers the event at it",
    ),
    failpoint(
        "subscription-checkpoint-too-far",
        "the checkpoint of a caught-up subscription is the end of the log, not the last event read",
    ),
    failpoint(
        "watch-wake-first-stream-only",
        "an append to several streams wakes only the waiters of the first one",
    ),
    failpoint(
        "filter-claim-too-much-examined",
        "a filtered batch that ends at its limit claims that it examined every event",
    ),
    failpoint(
        "filter-drop-last-match",
        "a matching event is skipped where it is the last one within the limit",
    ),
    failpoint("view-count-first-entry-twice", "a view counts its first event after a flush twice"),
    failpoint("view-omit-unflushed-entries", "reads of a flushed view omit later events"),
    failpoint("view-block-drop-last-entry", "a block of a view is written without its last entry"),
    failpoint("view-resume-late", "a subscription to a view continues one entry too late"),
    SHOW_BEFORE_DURABLE,
    REUSE_POSITIONS,
];

/// Faults in the server that concurrent clients detect; two of these faults are in the event store.
pub const SERVER: [Failpoint; 8] = [
    failpoint(
        "append-acknowledge-early",
        "the server answers an append before the store acknowledges it",
    ),
    RETRY_RETURNS_NEW,
    OMIT_DETAIL,
    failpoint(
        "subscription-skip-to-end",
        "a caught-up subscription to all continues after the visible position, not its last read",
    ),
    failpoint(
        "subscribe-repeat-event",
        "a subscription begins with the event that the request names, not after it",
    ),
    SWAP_RESULTS,
    SHOW_BEFORE_DURABLE,
    REUSE_POSITIONS,
];

/// Faults in the calls of the server.
pub const CALLS: [Failpoint; 12] = [
    failpoint(
        "session-report-last-conflict",
        "an append session with several version conflicts reports the last one",
    ),
    failpoint(
        "batch-accept-changed-options",
        "a later part of a batch may name another stream or expected version",
    ),
    failpoint("batch-ignore-deadline", "a batch is written although its deadline has passed"),
    failpoint("server-accept-disabled-user", "a disabled user is accepted"),
    failpoint(
        "server-change-password-unverified",
        "a user may change a password without the current one",
    ),
    failpoint("group-forget-update", "an update of a consumer group has no effect"),
    failpoint("group-admit-extra-consumer", "a consumer group admits one consumer too many"),
    failpoint("server-report-stopped-view-running", "a stopped projection is reported as running"),
    RETRY_RETURNS_NEW,
    OMIT_DETAIL,
    SWAP_RESULTS,
    FORGET_RETRIES,
];

/// Faults in checks of moved, replaced and removed directories.
pub const DIRECTORIES: [Failpoint; 3] = [
    failpoint(
        "manifest-skip-replacement-check",
        "CURRENT and the manifest are not compared with those that were written last",
    ),
    failpoint(
        "chunk-manifest-skip-replacement-check",
        "the chunk manifest is not compared with the one that was written last",
    ),
    failpoint("sync-skip-directory-check", "a sync in a removed directory is acknowledged"),
];
