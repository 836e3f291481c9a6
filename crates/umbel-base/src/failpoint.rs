//! Bugs to switch on inside the engine, so that the campaigns can prove that they find them.
//!
//! Only there with the feature `canary`, which nothing that users get turns on.

use std::sync::atomic::{AtomicU64, Ordering};

static ON: AtomicU64 = AtomicU64::new(0);

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Switch {
    /// Every checksum is the same number.
    IgnoredChecksum = 1,
    /// Compaction drops tombstones above the bottom.
    TombstonesDroppedEarly = 2,
    /// Recovery gives sequence numbers out again.
    ReusedSequence = 4,
    /// Recovery gives file ids out again.
    ReusedFileId = 8,
    /// Compaction does not ask for snapshots.
    SnapshotsForgotten = 16,
    /// The file of a long value goes while somebody may still look at it.
    BlobRemovedEarly = 32,
    /// While the existence filter grows, a new hash goes to the filter that is to be left.
    ExistenceInsertsIntoOld = 64,
    /// A generation names the filter file that was there and does not write it anew.
    ExistenceStaleFilter = 128,
    /// A generation's journal is begun when its filter is written, not before.
    ExistenceJournalBehindFilter = 256,
    /// What a failed flush had taken is not written by the next one.
    ExistenceForgetsFailedFlush = 512,
    /// A flush leaves hashes in memory that it says are covered.
    ExistenceCoversTooMuch = 1024,
    /// A page that was not read yet is taken for an empty one.
    ExistenceUnreadMeansNo = 2048,
    /// The digests of pages are not looked at.
    ExistencePageDigestIgnored = 4096,
    /// Where the second filter is missing the first one is believed.
    ExistenceTrustsFirstAlone = 8192,
    /// A damaged line is remade without what was inserted meanwhile.
    ExistenceHealForgetsInserts = 16384,
    /// The second filter counts before the source was walked through.
    ExistenceWalkEndsEarly = 32768,
    /// The server answers an append before the store acknowledges it.
    ServerAnswersEarly = 1 << 16,
    /// A retry is answered with revisions that come after those of the first time.
    ServerRetryCountsOn = 1 << 17,
    /// A refused batch does not say what its stream is at.
    ServerDetailForgotten = 1 << 18,
    /// A subscription to all goes on behind what can be seen, not behind what it has read.
    ServerSubscriptionSkips = 1 << 19,
    /// What recovery replays does not go into the existence filter of its keyspace.
    ExistenceReplayForgotten = 1 << 32,
    /// The existence filter of a keyspace is made of what is in tables only.
    ExistenceWalkSkipsMemtables = 1 << 33,
    /// An existence filter is believed that does not cover all of the keyspace's tables.
    ExistenceUncoveredBelieved = 1 << 34,
    /// An append to a synced event store is seen before it is durable.
    EventsSeenEarly = 1 << 20,
    /// Positions that a power cut took are given to other events.
    EventsPositionsReused = 1 << 21,
    /// The index of an event store is flushed before the log it rests on is durable.
    EventsIndexAhead = 1 << 22,
    /// Events behind a gap in the event log count.
    EventsBehindGap = 1 << 23,
    /// A retry of an append is not known.
    EventsRetryForgotten = 1 << 24,
    /// The ids of the newest events are not read again when an event store is opened.
    EventsWindowLost = 1 << 25,
    /// Catching up puts an older head over a newer one.
    EventsHeadGoesBack = 1 << 26,
    /// An append does not see those before it that are not in the index yet.
    EventsAheadForgotten = 1 << 27,
    /// An expected revision is not looked at.
    EventsExpectedIgnored = 1 << 28,
    /// Each flush says that the index holds all of the log.
    EventsMarkerTooFar = 1 << 29,
    /// A subscription begins with the event that the request names, not behind it.
    ServerSubscriptionRepeats = 1 << 30,
    /// Two batches of a call are each answered with what became of the other.
    ServerBatchesSwapped = 1 << 31,
    /// Whether more follows a full batch is found out by taking it.
    SubscriptionSkips = 1 << 35,
    /// A subscription that begins behind a place begins with what stands there.
    SubscriptionRepeats = 1 << 36,
    /// The checkpoint of who has caught up is the end of the log, not of what can be seen.
    SubscriptionAhead = 1 << 37,
    /// Of an append to several streams only those are woken who wait for the first.
    SubscriberNotWoken = 1 << 38,
    /// A filtered batch that ends at its limit says that everything was looked at.
    FilterExaminedTooFar = 1 << 39,
    /// An event that passes a filter is left out where it is the last one that may be looked at.
    FilterDropsLast = 1 << 40,
    /// The first event that a view is given after a flush counts twice.
    ViewCountsTwice = 1 << 41,
    /// Of a view that was flushed, what came since then is not read.
    ViewTailForgotten = 1 << 42,
    /// A block of a view is written without its last entry.
    ViewBlockShort = 1 << 43,
    /// A subscription to a view goes on one entry too far behind its place.
    ViewResumesLate = 1 << 44,
    /// Of several streams of a session that are not as expected the last is told.
    ServerSessionTellsLast = 1 << 45,
    /// A later part of a batch may name another stream or expect something else.
    ServerBatchChangesMind = 1 << 46,
    /// A batch whose deadline has passed is written all the same.
    ServerBatchTooLateWritten = 1 << 47,
    /// A user who is disabled is let in.
    ServerDisabledLetIn = 1 << 48,
    /// Another password may be chosen without knowing the one there is.
    ServerPasswordUnasked = 1 << 49,
    /// A group that is changed works as before.
    ServerGroupUpdateForgotten = 1 << 50,
    /// A group takes one consumer more than it may.
    ServerGroupOneMore = 1 << 51,
    /// A view that was stopped is said to run.
    ServerViewSaidToRun = 1 << 52,
    /// `CURRENT` and the manifest are not compared with what was written last.
    OwnershipIgnored = 1 << 53,
    /// The table of chunks is not compared with the one that was written last.
    EventsChunksNotOwned = 1 << 54,
    /// A sync in a directory that was removed is acknowledged.
    RemovedDirectorySynced = 1 << 55,
}

impl Switch {
    /// Plants the bug, in the whole process.
    pub fn turn_on(self) {
        ON.fetch_or(self as u64, Ordering::Relaxed);
    }

    /// Whether it is planted.
    pub fn is_on(self) -> bool {
        ON.load(Ordering::Relaxed) & self as u64 != 0
    }
}

/// Takes every bug out.
pub fn turn_all_off() {
    ON.store(0, Ordering::Relaxed);
}
