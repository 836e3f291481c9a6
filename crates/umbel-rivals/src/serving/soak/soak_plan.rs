//! Plan of the soak: kinds of work, and their rates.

/// Kind of work. Each kind has its own workers, which make calls at a fixed rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SoakWork {
    /// `Append` of one event to a new stream.
    AppendNew,
    /// `Append` of one event to a stream of the worker, whose revision it knows.
    AppendOld,
    /// `BatchAppend` of [`BATCH_EVENTS`], one in flight; every fourth to a new stream.
    Batch,
    /// `Read` of a hundred events of a stream, from its end or from any revision.
    ReadStream,
    /// `Read` of a thousand events of the whole store, from any position.
    ReadAll,
    /// `Read` of a stream that does not exist.
    ReadMissing,
    /// Subscription to all that is dropped after 200 events, or after its confirmation.
    FollowAll,
    /// Subscription to a stream that is dropped after 50 events.
    FollowStream,
    /// Consumer group that is created, joined, described and deleted; the consumer acknowledges its
    /// events.
    Group,
    /// Connection that is opened and closed, with a read or without.
    Connection,
    /// One of these calls: create, disable, enable, describe or delete a user, or set its password.
    User,
    /// Metadata of a stream, an append to it and a read that shows no more than the metadata
    /// allows.
    Metadata,
    /// Stream that is filled, deleted or tombstoned, read, and sometimes created again.
    Delete,
    /// No call, but the time from the creation of an event to its delivery to a long subscription
    /// to all events.
    DeliveryAll,
    /// No call, but the time from the creation of an event to its delivery to a long subscription
    /// to a stream.
    DeliveryStream,
    /// No call, but the time from the creation of an event to its first delivery to a consumer of a
    /// group.
    DeliveryGroup,
}

/// All kinds of work.
pub const ALL: [SoakWork; 16] = [
    SoakWork::AppendNew,
    SoakWork::AppendOld,
    SoakWork::Batch,
    SoakWork::ReadStream,
    SoakWork::ReadAll,
    SoakWork::ReadMissing,
    SoakWork::FollowAll,
    SoakWork::FollowStream,
    SoakWork::Group,
    SoakWork::Connection,
    SoakWork::User,
    SoakWork::Metadata,
    SoakWork::Delete,
    SoakWork::DeliveryAll,
    SoakWork::DeliveryStream,
    SoakWork::DeliveryGroup,
];

/// Events in a batch.
pub const BATCH_EVENTS: u64 = 20;
/// Workers of each kind of append.
pub const APPENDERS: usize = 4;
/// Single appends a second of each kind.
const APPENDS: f64 = 200.0;
/// Growing streams of each worker of `AppendOld` and `Batch`.
pub const STREAMS: usize = 16;
/// Estimate of an event's bytes on disk: its 100 bytes of data, names, identifiers, its share of
/// the index, and space that compaction needs temporarily.
const DISK_BYTES: u64 = 350;

/// Returns the number of the first writer of this kind; the numbers of the other writers follow.
pub fn first_writer(kind: SoakWork) -> Option<usize> {
    match kind {
        SoakWork::AppendNew => Some(0),
        SoakWork::AppendOld => Some(APPENDERS),
        SoakWork::Batch => Some(2 * APPENDERS),
        SoakWork::Metadata => Some(3 * APPENDERS),
        SoakWork::Delete => Some(3 * APPENDERS + 1),
        _ => None,
    }
}

/// Number of writers.
pub const WRITERS: usize = 3 * APPENDERS + 2;

impl SoakWork {
    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            SoakWork::AppendNew => "append, new stream",
            SoakWork::AppendOld => "append, existing stream",
            SoakWork::Batch => "batch of 20",
            SoakWork::ReadStream => "read 100 of a stream",
            SoakWork::ReadAll => "read 1,000 of all",
            SoakWork::ReadMissing => "read a missing stream",
            SoakWork::FollowAll => "subscribe to all and leave",
            SoakWork::FollowStream => "subscribe to a stream and leave",
            SoakWork::Group => "create, join and delete a group",
            SoakWork::Connection => "connect and leave",
            SoakWork::User => "change a user",
            SoakWork::Metadata => "change metadata, append, read",
            SoakWork::Delete => "fill, delete and read a stream",
            SoakWork::DeliveryAll => "delivery to a subscriber of all",
            SoakWork::DeliveryStream => "delivery to a subscriber of a stream",
            SoakWork::DeliveryGroup => "delivery to a consumer of a group",
        }
    }

    /// Returns the number of concurrent workers.
    pub fn workers(self) -> usize {
        match self {
            SoakWork::AppendNew | SoakWork::AppendOld | SoakWork::Batch => APPENDERS,
            SoakWork::DeliveryAll | SoakWork::DeliveryStream | SoakWork::DeliveryGroup => 0,
            _ => 1,
        }
    }

    /// Returns the calls a second of all workers of this kind together, given the number of events
    /// a second of the whole soak.
    pub fn per_second(self, rate: u64) -> f64 {
        match self {
            SoakWork::AppendNew | SoakWork::AppendOld => APPENDS,
            SoakWork::Batch => (rate as f64 - 2.0 * APPENDS).max(0.0) / BATCH_EVENTS as f64,
            SoakWork::ReadStream => 20.0,
            SoakWork::ReadAll
            | SoakWork::Connection
            | SoakWork::Metadata
            | SoakWork::FollowStream => 5.0,
            SoakWork::ReadMissing => 50.0,
            SoakWork::FollowAll | SoakWork::Delete => 2.0,
            SoakWork::Group | SoakWork::User => 1.0,
            SoakWork::DeliveryAll | SoakWork::DeliveryStream | SoakWork::DeliveryGroup => 0.0,
        }
    }
}

/// Estimates the events and bytes on disk of a soak of the given minutes.
pub fn estimate(rate: u64, minutes: u64) -> (u64, u64) {
    let events = rate * minutes * 60;
    (events, events * DISK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_fill_the_rate_up() {
        let batches = SoakWork::Batch.per_second(3000) * BATCH_EVENTS as f64;
        assert_eq!(batches + 2.0 * APPENDS, 3000.0);
        assert!(SoakWork::Batch.per_second(crate::serving::serving_arguments::RATE_MIN) > 0.0);
    }

    #[test]
    fn writers_of_workers_are_distinct() {
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
