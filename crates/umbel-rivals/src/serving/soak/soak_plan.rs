//! What the soak does, and how often.

/// A kind of work. Each has workers of its own, who begin a call each so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `Append` of one event to a stream that is not there.
    AppendNew,
    /// `Append` of one event to a stream of the worker's, whose revision it knows.
    AppendOld,
    /// `BatchAppend` of [`BATCH_EVENTS`], one under way; every fourth to a new stream.
    Batch,
    /// `Read` of a hundred events of a stream, from its end or from somewhere.
    ReadStream,
    /// `Read` of a thousand of all events, from somewhere.
    ReadAll,
    /// `Read` of a stream that is not there.
    ReadMissing,
    /// A subscription to all that is dropped after 200 events, or after its confirmation.
    FollowAll,
    /// A subscription to a stream that is dropped after 50 events.
    FollowStream,
    /// A group that is made, joined, acknowledged to, asked and deleted.
    Group,
    /// A connection that is opened and closed, with a read or without.
    Connection,
    /// One of: a user made, given a password, disabled, enabled, described, deleted.
    User,
    /// Metadata of a stream, an append to it and a read that shows no more than it says.
    Metadata,
    /// A stream that is filled, deleted or deleted for good, read, and sometimes brought back.
    Delete,
    /// No call: an event's way from its making to a subscriber of all who stays.
    DeliveryAll,
    /// No call: the same to a subscriber of a stream.
    DeliveryStream,
    /// No call: the same to a consumer of a group, where it is sent for the first time.
    DeliveryGroup,
}

/// Every kind.
pub const ALL: [Kind; 16] = [
    Kind::AppendNew,
    Kind::AppendOld,
    Kind::Batch,
    Kind::ReadStream,
    Kind::ReadAll,
    Kind::ReadMissing,
    Kind::FollowAll,
    Kind::FollowStream,
    Kind::Group,
    Kind::Connection,
    Kind::User,
    Kind::Metadata,
    Kind::Delete,
    Kind::DeliveryAll,
    Kind::DeliveryStream,
    Kind::DeliveryGroup,
];

/// Events in a batch.
pub const BATCH_EVENTS: u64 = 20;
/// Workers of each kind of append.
pub const APPENDERS: usize = 4;
/// Single appends a second of each kind.
const APPENDS: f64 = 200.0;
/// Streams that each worker of `AppendOld` and `Batch` has for itself.
pub const STREAMS: usize = 16;
/// The fewest events a second that a soak can be asked for: batches are what is left.
pub const RATE_MIN: u64 = 500;
/// Bytes on disk that an event is taken to cost in the estimate: its 100 bytes of data, names,
/// identifiers, its part of the index, and what compaction holds twice for a while.
const DISK_BYTES: u64 = 350;

/// The number of the first writer of this kind; the numbers of the others follow.
pub fn first_writer(kind: Kind) -> Option<usize> {
    match kind {
        Kind::AppendNew => Some(0),
        Kind::AppendOld => Some(APPENDERS),
        Kind::Batch => Some(2 * APPENDERS),
        Kind::Metadata => Some(3 * APPENDERS),
        Kind::Delete => Some(3 * APPENDERS + 1),
        _ => None,
    }
}

/// How many writers there are.
pub const WRITERS: usize = 3 * APPENDERS + 2;

impl Kind {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::AppendNew => "append, new stream",
            Kind::AppendOld => "append, existing stream",
            Kind::Batch => "batch of 20",
            Kind::ReadStream => "read 100 of a stream",
            Kind::ReadAll => "read 1,000 of all",
            Kind::ReadMissing => "read a missing stream",
            Kind::FollowAll => "subscribe to all and leave",
            Kind::FollowStream => "subscribe to a stream and leave",
            Kind::Group => "make, join and delete a group",
            Kind::Connection => "connect and leave",
            Kind::User => "change a user",
            Kind::Metadata => "change metadata, append, read",
            Kind::Delete => "fill, delete and read a stream",
            Kind::DeliveryAll => "way to a subscriber of all",
            Kind::DeliveryStream => "way to a subscriber of a stream",
            Kind::DeliveryGroup => "way to a consumer of a group",
        }
    }

    /// How many do it at once.
    pub fn workers(self) -> usize {
        match self {
            Kind::AppendNew | Kind::AppendOld | Kind::Batch => APPENDERS,
            Kind::DeliveryAll | Kind::DeliveryStream | Kind::DeliveryGroup => 0,
            _ => 1,
        }
    }

    /// Calls a second that all its workers begin together, with so many events a second in all.
    pub fn per_second(self, rate: u64) -> f64 {
        match self {
            Kind::AppendNew | Kind::AppendOld => APPENDS,
            Kind::Batch => (rate as f64 - 2.0 * APPENDS).max(0.0) / BATCH_EVENTS as f64,
            Kind::ReadStream => 20.0,
            Kind::ReadAll | Kind::Connection | Kind::Metadata | Kind::FollowStream => 5.0,
            Kind::ReadMissing => 50.0,
            Kind::FollowAll | Kind::Delete => 2.0,
            Kind::Group | Kind::User => 1.0,
            Kind::DeliveryAll | Kind::DeliveryStream | Kind::DeliveryGroup => 0.0,
        }
    }
}

/// Events and bytes on disk that a soak of so many minutes comes to.
pub fn estimate(rate: u64, minutes: u64) -> (u64, u64) {
    let events = rate * minutes * 60;
    (events, events * DISK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_bring_what_single_appends_leave() {
        let batches = Kind::Batch.per_second(3000) * BATCH_EVENTS as f64;
        assert_eq!(batches + 2.0 * APPENDS, 3000.0);
        assert!(Kind::Batch.per_second(RATE_MIN) > 0.0);
    }

    #[test]
    fn no_two_workers_have_the_same_writer() {
        let mut writers: Vec<usize> = ALL
            .into_iter()
            .filter_map(|kind| Some((first_writer(kind)?, kind.workers())))
            .flat_map(|(first, count)| first..first + count)
            .collect();
        writers.sort_unstable();
        assert_eq!(writers, (0..WRITERS).collect::<Vec<_>>());
    }

    #[test]
    fn an_hour_fits_a_disk_of_a_few_gigabytes() {
        let (events, bytes) = estimate(3000, 60);
        assert_eq!(events, 10_800_000);
        assert!(bytes < 4_000_000_000);
    }
}
