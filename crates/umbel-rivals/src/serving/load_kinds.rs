//! Kinds of work of the load clients.

/// Kind of work of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// `Append` of one event each, to new streams.
    AppendNew,
    /// `Append` of one event each; each client appends to its own stream.
    AppendOld,
    /// `BatchAppend` of one event each, many in flight, to new streams.
    BatchNew,
    /// `BatchAppend` of one event each, many in flight; each client appends to its own stream.
    BatchOld,
    /// `BatchAppend` of [`BATCH_EVENTS`] events each to new streams.
    BatchMany,
    /// `Read` of one event at a random revision of a stream.
    ReadOne,
    /// `Read` of a whole stream of [`STREAM_EVENTS`].
    ReadStream,
    /// `Read` of [`ALL_EVENTS`] of all events.
    ReadAll,
    /// Subscribers to all events, each of which receives every event.
    LiveAll,
    /// Subscribers, each of which subscribes to one stream.
    LiveStreams,
}

/// Events in each stream that is read.
pub const STREAM_EVENTS: u64 = 1000;
/// Number of streams that are read.
pub const STREAMS: u64 = 100;
/// Number of events in one read of all events.
pub const ALL_EVENTS: u64 = 10_000;
/// Number of events in the larger batches.
pub const BATCH_EVENTS: u64 = 20;
/// Number of batches in flight for each client.
pub const BATCHES_IN_FLIGHT: usize = 256;

/// Work with its number of clients and durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Kind of work.
    pub kind: WorkKind,
    /// Number of clients, each with its own connection.
    pub clients: usize,
    /// Whether appends are acknowledged only when they are synced.
    pub synced: bool,
}

impl WorkKind {
    /// Returns the name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            WorkKind::AppendNew => "append, new streams",
            WorkKind::AppendOld => "append, one stream a client",
            WorkKind::BatchNew => "batch append, new streams",
            WorkKind::BatchOld => "batch append, one stream a client",
            WorkKind::BatchMany => "batch append of 20, new streams",
            WorkKind::ReadOne => "read one event",
            WorkKind::ReadStream => "read a stream of 1000",
            WorkKind::ReadAll => "read 10,000 of all",
            WorkKind::LiveAll => "subscribers to all",
            WorkKind::LiveStreams => "subscribers to a stream each",
        }
    }

    /// Returns the fraction of the bare server's rate that is the target.
    pub fn target_share(self) -> Option<f64> {
        match self {
            WorkKind::AppendNew | WorkKind::AppendOld | WorkKind::ReadOne => Some(0.7),
            WorkKind::BatchNew | WorkKind::BatchMany | WorkKind::ReadStream | WorkKind::ReadAll => {
                Some(0.5)
            }
            WorkKind::BatchOld | WorkKind::LiveAll | WorkKind::LiveStreams => None,
        }
    }
}

impl Work {
    /// Returns the name on the command line and in the report.
    pub fn name(self) -> String {
        let synced = if self.synced { ", synced" } else { "" };
        format!("{}{synced}", self.kind.name())
    }
}

/// Lists all work, with this number of subscribers.
pub fn all(subscribers: usize) -> Vec<Work> {
    let work = |kind, synced| move |clients| Work { kind, clients, synced };
    let mut all = Vec::new();
    for synced in [false, true] {
        all.extend([1, 16, 256].map(work(WorkKind::AppendNew, synced)));
        all.extend([1, 16, 256].map(work(WorkKind::AppendOld, synced)));
        all.extend([1, 4].map(work(WorkKind::BatchNew, synced)));
        all.extend([1, 4].map(work(WorkKind::BatchOld, synced)));
        all.extend([1, 4].map(work(WorkKind::BatchMany, synced)));
    }
    all.extend([1, 16, 256].map(work(WorkKind::ReadOne, false)));
    all.extend([1, 16].map(work(WorkKind::ReadStream, false)));
    all.extend([1, 16].map(work(WorkKind::ReadAll, false)));
    all.push(work(WorkKind::LiveAll, false)(subscribers));
    all.push(work(WorkKind::LiveStreams, false)(subscribers));
    all
}
