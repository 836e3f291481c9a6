//! Phases of a run.

/// Phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Puts in random order, into an empty store, until they are acknowledged.
    PutRandom,
    /// Puts in random order, into an empty store, until no background work is left and every file
    /// is synced.
    FillRandom,
    /// Puts in key order, into an empty store, until they are acknowledged.
    PutSequential,
    /// Puts in key order, into an empty store, until no background work is left and every file is
    /// synced.
    FillSequential,
    /// Gets of present keys, all over the store.
    GetHit,
    /// Gets of ten thousand keys, repeatedly.
    GetHot,
    /// Gets at random, half of them of present keys.
    GetHalf,
    /// Gets of absent keys that lie between present ones.
    GetMissing,
    /// Gets of present keys, 32 at a time.
    MultiHit,
    /// Gets at random, half of them of present keys, 32 at a time.
    MultiHalf,
    /// Gets of absent keys, 32 at a time.
    MultiMissing,
    /// Seek of a kept cursor to a present key, and a read of ten entries.
    SeekKept,
    /// New cursor or iterator, a seek to a present key, and a read of ten entries.
    SeekFresh,
    /// Scan of every entry in key order.
    Scan,
    /// Open after a clean close, up to the first answer.
    Open,
    /// Puts that survive power loss, one thread.
    SyncedOne,
    /// Puts that survive power loss, eight threads at once.
    SyncedEight,
    /// Gets of present keys, each timed, without other load.
    ReadAlone,
    /// Gets of present keys, each timed, as fast as possible beside a writer at full rate.
    ReadWhileWriting,
    /// Gets of present keys, each timed, at half of their rate alone, beside a writer at full rate.
    ReadWhileWritingPaced,
}

impl Phase {
    /// Phases that only read, in the order in which they run.
    pub const READS: [Phase; 10] = [
        Phase::GetHit,
        Phase::GetHot,
        Phase::GetHalf,
        Phase::GetMissing,
        Phase::MultiHit,
        Phase::MultiHalf,
        Phase::MultiMissing,
        Phase::SeekKept,
        Phase::SeekFresh,
        Phase::Scan,
    ];

    /// Phases that write or open.
    pub const WRITES: [Phase; 7] = [
        Phase::PutRandom,
        Phase::FillRandom,
        Phase::PutSequential,
        Phase::FillSequential,
        Phase::SyncedOne,
        Phase::SyncedEight,
        Phase::Open,
    ];

    /// Phases that read beside a writer, and the baseline without a writer.
    pub const CONCURRENT: [Phase; 3] =
        [Phase::ReadAlone, Phase::ReadWhileWriting, Phase::ReadWhileWritingPaced];

    /// Returns the name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Phase::PutRandom => "put-random",
            Phase::FillRandom => "fill-random",
            Phase::PutSequential => "put-sequential",
            Phase::FillSequential => "fill-sequential",
            Phase::GetHit => "get-hit",
            Phase::GetHot => "get-hot",
            Phase::GetHalf => "get-half",
            Phase::GetMissing => "get-missing",
            Phase::MultiHit => "multi-hit",
            Phase::MultiHalf => "multi-half",
            Phase::MultiMissing => "multi-missing",
            Phase::SeekKept => "seek-10-kept",
            Phase::SeekFresh => "seek-10-fresh",
            Phase::Scan => "scan",
            Phase::Open => "open",
            Phase::SyncedOne => "synced-1-thread",
            Phase::SyncedEight => "synced-8-threads",
            Phase::ReadAlone => "read-alone",
            Phase::ReadWhileWriting => "read-beside",
            Phase::ReadWhileWritingPaced => "read-paced",
        }
    }

    /// Returns the head of the column.
    pub fn head(self) -> &'static str {
        match self {
            Phase::PutRandom => "random puts, thousand/s",
            Phase::FillRandom => "random fill, thousand/s",
            Phase::PutSequential => "sequential puts, thousand/s",
            Phase::FillSequential => "sequential fill, thousand/s",
            Phase::GetHit => "get hit",
            Phase::GetHot => "get 10 k hot",
            Phase::GetHalf => "get half",
            Phase::GetMissing => "get missing",
            Phase::MultiHit => "multi_get 32 hit, per key",
            Phase::MultiHalf => "multi_get 32 half",
            Phase::MultiMissing => "multi_get 32 missing",
            Phase::SeekKept => "seek + 10, kept",
            Phase::SeekFresh => "seek + 10, fresh",
            Phase::Scan => "scan, per entry",
            Phase::Open => "open, ms",
            Phase::SyncedOne => "synced, 1 thread /s",
            Phase::SyncedEight => "synced, 8 threads /s",
            Phase::ReadAlone => "alone, thousand/s",
            Phase::ReadWhileWriting => "beside a writer, thousand/s",
            Phase::ReadWhileWritingPaced => "at half rate, thousand/s",
        }
    }

    /// Converts the time of one operation to the unit of the column.
    pub fn figure(self, operation_ns: f64) -> f64 {
        match self {
            Phase::PutRandom
            | Phase::FillRandom
            | Phase::PutSequential
            | Phase::FillSequential
            | Phase::ReadAlone
            | Phase::ReadWhileWriting
            | Phase::ReadWhileWritingPaced => 1e6 / operation_ns,
            Phase::SyncedOne | Phase::SyncedEight => 1e9 / operation_ns,
            Phase::Open => operation_ns / 1e6,
            _ => operation_ns,
        }
    }

    /// Whether the answers are the same for all engines.
    pub fn has_answers(self) -> bool {
        Phase::READS.contains(&self) || Phase::CONCURRENT.contains(&self) || self == Phase::Open
    }
}
