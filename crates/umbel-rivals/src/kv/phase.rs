//! What is measured.

/// A piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Puts in an order without order, into an empty store, until they are acknowledged.
    PutRandom,
    /// The same until nothing is left to do in the background and every file is synced.
    FillRandom,
    /// Puts in key order, into an empty store, until they are acknowledged.
    PutSequential,
    /// The same until nothing is left to do in the background and every file is synced.
    FillSequential,
    /// Gets of keys that are there, all over the store.
    GetHit,
    /// Gets of ten thousand keys again and again.
    GetHot,
    /// Gets of which half hit and half miss, at random.
    GetHalf,
    /// Gets of keys that are not there and lie between those that are.
    GetMissing,
    /// Gets of keys that are there, 32 at a time.
    MultiHit,
    /// Gets of which half hit and half miss, 32 at a time.
    MultiHalf,
    /// Gets of keys that are not there, 32 at a time.
    MultiMissing,
    /// A seek of a kept cursor to a key that is there, ten entries.
    SeekKept,
    /// A fresh cursor or iterator, a seek to a key that is there, ten entries.
    SeekFresh,
    /// Every entry in key order.
    Scan,
    /// Opening after a clean close, up to the first answer.
    Open,
    /// Puts that survive power loss, one thread.
    SyncedOne,
    /// The same from eight threads at once.
    SyncedEight,
    /// Gets of keys that are there, each timed, while nothing else goes on.
    ReadAlone,
    /// The same beside a writer at full rate, as fast as they go.
    ReadBeside,
    /// The same beside a writer at full rate, at half the rate they had alone.
    ReadPaced,
}

impl Phase {
    /// Those that only read, in the order in which they are run.
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

    /// Those that write or open.
    pub const WRITES: [Phase; 7] = [
        Phase::PutRandom,
        Phase::FillRandom,
        Phase::PutSequential,
        Phase::FillSequential,
        Phase::SyncedOne,
        Phase::SyncedEight,
        Phase::Open,
    ];

    /// Those that read beside a writer, and their measure.
    pub const BESIDE: [Phase; 3] = [Phase::ReadAlone, Phase::ReadBeside, Phase::ReadPaced];

    /// Its name in the results.
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
            Phase::ReadBeside => "read-beside",
            Phase::ReadPaced => "read-paced",
        }
    }

    /// The head of its column.
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
            Phase::ReadBeside => "beside a writer, thousand/s",
            Phase::ReadPaced => "at half rate, thousand/s",
        }
    }

    /// The time of one operation, as its column states it.
    pub fn figure(self, operation_ns: f64) -> f64 {
        match self {
            Phase::PutRandom
            | Phase::FillRandom
            | Phase::PutSequential
            | Phase::FillSequential
            | Phase::ReadAlone
            | Phase::ReadBeside
            | Phase::ReadPaced => 1e6 / operation_ns,
            Phase::SyncedOne | Phase::SyncedEight => 1e9 / operation_ns,
            Phase::Open => operation_ns / 1e6,
            _ => operation_ns,
        }
    }

    /// Whether its answers are the same for all engines.
    pub fn has_answers(self) -> bool {
        Phase::READS.contains(&self) || Phase::BESIDE.contains(&self) || self == Phase::Open
    }
}
