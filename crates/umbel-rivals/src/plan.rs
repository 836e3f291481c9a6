//! What is measured.

/// A piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Puts in an order without order, into an empty store.
    FillRandom,
    /// From the last put until nothing is left to do in the background.
    Settle,
    /// Puts in key order, into an empty store.
    FillSequential,
    /// Gets of keys that are there, all over the store.
    GetHit,
    /// Gets of keys that are not there and lie between those that are.
    GetMissing,
    /// Gets of ten thousand keys again and again.
    GetHot,
    /// Gets of keys that are there, 32 at a time.
    MultiGet,
    /// A fresh iterator, a seek to a key that is there, ten entries.
    Seek,
    /// Every entry in key order.
    Scan,
    /// Opening after a clean close, up to the first answer.
    Open,
    /// Puts that survive power loss, one thread.
    SyncedOne,
    /// The same from eight threads at once.
    SyncedEight,
}

impl Phase {
    /// Those that only read, in the order in which they are run.
    pub const READS: [Phase; 6] = [
        Phase::GetHit,
        Phase::GetMissing,
        Phase::GetHot,
        Phase::MultiGet,
        Phase::Seek,
        Phase::Scan,
    ];

    /// Those that write or open.
    pub const WRITES: [Phase; 6] = [
        Phase::FillRandom,
        Phase::Settle,
        Phase::FillSequential,
        Phase::SyncedOne,
        Phase::SyncedEight,
        Phase::Open,
    ];

    /// Its name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Phase::FillRandom => "fill-random",
            Phase::Settle => "settle",
            Phase::FillSequential => "fill-sequential",
            Phase::GetHit => "get-hit",
            Phase::GetMissing => "get-missing",
            Phase::GetHot => "get-hot",
            Phase::MultiGet => "multi-get-32",
            Phase::Seek => "seek-10",
            Phase::Scan => "scan",
            Phase::Open => "open",
            Phase::SyncedOne => "synced-1-thread",
            Phase::SyncedEight => "synced-8-threads",
        }
    }

    /// The head of its column.
    pub fn head(self) -> &'static str {
        match self {
            Phase::FillRandom => "random fill, thousand/s",
            Phase::Settle => "settle, s",
            Phase::FillSequential => "sequential fill, thousand/s",
            Phase::GetHit => "get hit",
            Phase::GetMissing => "get missing",
            Phase::GetHot => "get 10 k hot",
            Phase::MultiGet => "multi_get 32, per key",
            Phase::Seek => "seek + 10",
            Phase::Scan => "scan, per entry",
            Phase::Open => "open, ms",
            Phase::SyncedOne => "synced, 1 thread /s",
            Phase::SyncedEight => "synced, 8 threads /s",
        }
    }

    /// The time of one operation, as its column states it.
    pub fn figure(self, operation_ns: f64) -> f64 {
        match self {
            Phase::FillRandom | Phase::FillSequential => 1e6 / operation_ns,
            Phase::SyncedOne | Phase::SyncedEight => 1e9 / operation_ns,
            Phase::Settle => operation_ns / 1e9,
            Phase::Open => operation_ns / 1e6,
            _ => operation_ns,
        }
    }
}
