//! The pieces of work.

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `Append` of one event each, to streams that are not there.
    AppendNew,
    /// `Append` of one event each, each client to a stream of its own.
    AppendOld,
    /// `BatchAppend` of one event each, many under way, to streams that are not there.
    BatchNew,
    /// The same, each client to a stream of its own.
    BatchOld,
    /// `BatchAppend` of [`BATCH_EVENTS`] events each to streams that are not there.
    BatchMany,
    /// `Read` of one event somewhere in a stream.
    ReadOne,
    /// `Read` of a whole stream of [`STREAM_EVENTS`].
    ReadStream,
    /// `Read` of [`ALL_EVENTS`] of all events.
    ReadAll,
    /// Subscribers to all events, who all get each.
    LiveAll,
    /// Subscribers to a stream each.
    LiveStreams,
}

/// Events in each stream that is read.
pub const STREAM_EVENTS: u64 = 1000;
/// Streams that are read.
pub const STREAMS: u64 = 100;
/// Events of all that are read in one call.
pub const ALL_EVENTS: u64 = 10_000;
/// Events of the larger batches.
pub const BATCH_EVENTS: u64 = 20;
/// Batches under way for each client.
pub const BATCHES_UNDER_WAY: usize = 256;

/// A piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// What the clients do.
    pub kind: Kind,
    /// How many there are, each with a connection of its own.
    pub clients: usize,
    /// Whether appends are acknowledged only when they are synced.
    pub synced: bool,
}

impl Kind {
    /// Its name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::AppendNew => "append, new streams",
            Kind::AppendOld => "append, one stream a client",
            Kind::BatchNew => "batch append, new streams",
            Kind::BatchOld => "batch append, one stream a client",
            Kind::BatchMany => "batch append of 20, new streams",
            Kind::ReadOne => "read one event",
            Kind::ReadStream => "read a stream of 1000",
            Kind::ReadAll => "read 10,000 of all",
            Kind::LiveAll => "subscribers to all",
            Kind::LiveStreams => "subscribers to a stream each",
        }
    }

    /// What share of the bare server's rate it is to reach.
    pub fn aim(self) -> Option<f64> {
        match self {
            Kind::AppendNew | Kind::AppendOld | Kind::ReadOne => Some(0.7),
            Kind::BatchNew | Kind::BatchMany | Kind::ReadStream | Kind::ReadAll => Some(0.5),
            Kind::BatchOld | Kind::LiveAll | Kind::LiveStreams => None,
        }
    }
}

impl Work {
    /// Its name on the command line and in the report.
    pub fn name(self) -> String {
        let synced = if self.synced { ", synced" } else { "" };
        format!("{}{synced}", self.kind.name())
    }
}

/// All of it, for that many subscribers.
pub fn all(subscribers: usize) -> Vec<Work> {
    let work = |kind, synced| move |clients| Work { kind, clients, synced };
    let mut all = Vec::new();
    for synced in [false, true] {
        all.extend([1, 16, 256].map(work(Kind::AppendNew, synced)));
        all.extend([1, 16, 256].map(work(Kind::AppendOld, synced)));
        all.extend([1, 4].map(work(Kind::BatchNew, synced)));
        all.extend([1, 4].map(work(Kind::BatchOld, synced)));
        all.extend([1, 4].map(work(Kind::BatchMany, synced)));
    }
    all.extend([1, 16, 256].map(work(Kind::ReadOne, false)));
    all.extend([1, 16].map(work(Kind::ReadStream, false)));
    all.extend([1, 16].map(work(Kind::ReadAll, false)));
    all.push(work(Kind::LiveAll, false)(subscribers));
    all.push(work(Kind::LiveStreams, false)(subscribers));
    all
}
