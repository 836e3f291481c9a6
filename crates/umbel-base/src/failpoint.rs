//! Faults that campaigns switch on in the engine, to prove that they detect them.
//!
//! Only with the feature `canary`, which no released build has.

use std::sync::atomic::{AtomicU64, Ordering};

static ENABLED: AtomicU64 = AtomicU64::new(0);

/// One planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Failpoint {
    /// Every checksum is the same number.
    IgnoredChecksum = 1,
    /// Compaction drops tombstones above the bottom.
    TombstonesDroppedEarly = 2,
    /// Recovery reuses sequence numbers.
    ReusedSequence = 4,
    /// Recovery reuses file ids.
    ReusedFileId = 8,
    /// Compaction does not check snapshots.
    SnapshotsForgotten = 16,
    /// The file of a long value is removed while a reader may still use it.
    BlobRemovedEarly = 32,
    /// While the existence filter grows, a new hash goes only to the old filter.
    ExistenceInsertsIntoOld = 64,
    /// A generation names an earlier filter file instead of writing a new one.
    ExistenceStaleFilter = 128,
    /// A generation's journal starts when its filter is written, not before.
    ExistenceJournalBehindFilter = 256,
    /// A flush omits the hashes of an earlier failed flush.
    ExistenceForgetsFailedFlush = 512,
    /// A flush leaves hashes in memory that its coverage includes.
    ExistenceCoversTooMuch = 1024,
    /// A page that was not read yet counts as empty.
    ExistenceUnreadMeansNo = 2048,
    /// The digests of pages are not checked.
    ExistencePageDigestIgnored = 4096,
    /// A lookup trusts the first filter where the second one is missing.
    ExistenceTrustsFirstAlone = 8192,
    /// A damaged line is rebuilt without concurrent inserts.
    ExistenceHealForgetsInserts = 16384,
    /// The second filter is used before the walk through the source ends.
    ExistenceWalkEndsEarly = 32768,
    /// The server answers an append before the store acknowledges it.
    ServerAnswersEarly = 1 << 16,
    /// A retry returns new revisions instead of those of the first attempt.
    ServerRetryCountsOn = 1 << 17,
    /// A version conflict does not name the current revision.
    ServerDetailForgotten = 1 << 18,
    /// A subscription to all continues after the visible position, not after its last read.
    ServerSubscriptionSkips = 1 << 19,
    /// Recovery does not add replayed keys to the existence filter of their keyspace.
    ExistenceReplayForgotten = 1 << 32,
    /// The existence filter of a keyspace is built from tables only.
    ExistenceWalkSkipsMemtables = 1 << 33,
    /// A lookup trusts an existence filter that does not cover all of the keyspace's tables.
    ExistenceUncoveredBelieved = 1 << 34,
    /// An append to a synced event store is seen before it is durable.
    EventsSeenEarly = 1 << 20,
    /// Positions that a power cut took are given to other events.
    EventsPositionsReused = 1 << 21,
    /// The index of an event store is flushed before the log it rests on is durable.
    EventsIndexAhead = 1 << 22,
    /// Events after a gap in the event log count.
    EventsBehindGap = 1 << 23,
    /// A retry of an append is not known.
    EventsRetryForgotten = 1 << 24,
    /// The ids of the newest events are not read again when an event store is opened.
    EventsWindowLost = 1 << 25,
    /// Catching up puts an older head over a newer one.
    EventsHeadGoesBack = 1 << 26,
    /// An append does not see those before it that are not in the index yet.
    EventsAheadForgotten = 1 << 27,
    /// The expected revision is not checked.
    EventsExpectedIgnored = 1 << 28,
    /// Each flush says that the index holds all of the log.
    EventsMarkerTooFar = 1 << 29,
    /// A subscription begins with the event that the request names, not after it.
    ServerSubscriptionRepeats = 1 << 30,
    /// The results of two batches of a call are swapped.
    ServerBatchesSwapped = 1 << 31,
    /// Whether more follows a full batch is found out by taking it.
    SubscriptionSkips = 1 << 35,
    /// A subscription that starts after a position also delivers the event at it.
    SubscriptionRepeats = 1 << 36,
    /// The checkpoint of a caught-up subscription is the end of the log, not the visible position.
    SubscriptionAhead = 1 << 37,
    /// Of an append to several streams only those waiters are woken that wait for the first.
    SubscriberNotWoken = 1 << 38,
    /// A filtered batch that ends at its limit claims to have checked every event.
    FilterExaminedTooFar = 1 << 39,
    /// A matching event is skipped where it is the last one within the limit.
    FilterDropsLast = 1 << 40,
    /// The first event that a view is given after a flush counts twice.
    ViewCountsTwice = 1 << 41,
    /// Reads of a flushed view omit later events.
    ViewTailForgotten = 1 << 42,
    /// A block of a view is written without its last entry.
    ViewBlockShort = 1 << 43,
    /// A subscription to a view continues one entry too late.
    ViewResumesLate = 1 << 44,
    /// Of several streams of a session that are not as expected the last is reported.
    ServerSessionTellsLast = 1 << 45,
    /// A later part of a batch may name another stream or expect something else.
    ServerBatchChangesMind = 1 << 46,
    /// A batch whose deadline has passed is written all the same.
    ServerBatchTooLateWritten = 1 << 47,
    /// A disabled user is accepted.
    ServerDisabledLetIn = 1 << 48,
    /// Another password may be chosen without knowing the one there is.
    ServerPasswordUnasked = 1 << 49,
    /// A group that is changed works as before.
    ServerGroupUpdateForgotten = 1 << 50,
    /// A group takes one consumer more than it may.
    ServerGroupOneMore = 1 << 51,
    /// A view that was stopped is said to run.
    ServerViewSaidToRun = 1 << 52,
    /// `CURRENT` and the manifest are not compared with the last written ones.
    OwnershipIgnored = 1 << 53,
    /// The table of chunks is not compared with the one that was written last.
    EventsChunksNotOwned = 1 << 54,
    /// A sync in a directory that was removed is acknowledged.
    RemovedDirectorySynced = 1 << 55,
}

impl Failpoint {
    /// Plants the bug, in the whole process.
    pub fn enable(self) {
        ENABLED.fetch_or(self as u64, Ordering::Relaxed);
    }

    /// Whether it is planted.
    pub fn is_enabled(self) -> bool {
        ENABLED.load(Ordering::Relaxed) & self as u64 != 0
    }
}

/// Takes every bug out.
pub fn disable_all() {
    ENABLED.store(0, Ordering::Relaxed);
}
