//! Failpoints in consumer groups and request decoders. They let the model tests prove that they
//! find bugs.
//!
//! Only tests can activate one, and each only for its own thread.

/// A failpoint: a deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failpoint {
    /// Events that wait to be parked do not hold the checkpoint back.
    CheckpointIgnoresParking,
    /// The first event in flight counts as processed.
    CheckpointTooFar,
    /// The checkpoint is the last event read.
    CheckpointIsLast,
    /// An ack of any consumer completes an event.
    AckOfOthers,
    /// Events in flight to a disconnected consumer are lost.
    DisconnectLosesEvents,
    /// A consumer gets one event more than its limit.
    CapacityIgnored,
    /// No event times out.
    TimeoutIgnored,
    /// Deliveries of an event are not counted.
    RetryNotCounted,
    /// An event is retried once more than allowed.
    RetryOnceMore,
    /// Events to be parked are dropped.
    ParkSkips,
    /// Events to be retried are dropped.
    RetrySkips,
    /// Pinned events go to any consumer with capacity.
    PinIgnored,
    /// The single active consumer is the last one.
    SingleIsLast,
    /// A parked event counts before it is written.
    ParkedUnwritten,
    /// Replayed events count as processed once they are read.
    ReplayTruncatesEarly,
    /// A replay skips its first event.
    ReplaySkips,
    /// Each page that is read loses its first event.
    PageSkips,
    /// A missing expected revision means any.
    ExpectedMissing,
    /// An invalid identifier reads as all zeros.
    IdIsZeros,
    /// An unknown direction reads as forwards.
    DirectionUnknown,
    /// A truncated append counts as complete.
    TruncationIsEnd,
    /// A malformed message counts as a failure of the server.
    MalformedIsInternal,
    /// An empty part is skipped.
    PartSkipped,
    /// A batch operation without a kind is skipped.
    KindMissing,
    /// The first condition of a batch is skipped.
    ConditionSkipped,
    /// A missing keyspace reads as the default one.
    KeyspaceIsDefault,
    /// A condition that does not hold counts as a failure of the server.
    ConflictIsInternal,
    /// A scan ignores its prefix.
    PrefixIgnored,
    /// A scan ignores that it is reversed.
    ReverseIgnored,
}

/// Whether the failpoint is active.
#[cfg(not(test))]
pub const fn is_enabled(_: Failpoint) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Failpoint>> = const { std::cell::Cell::new(None) };
}

/// Whether the failpoint is active.
#[cfg(test)]
pub fn is_enabled(failpoint: Failpoint) -> bool {
    ACTIVE.get() == Some(failpoint)
}

/// Activates a failpoint for this thread, or deactivates all.
#[cfg(test)]
pub fn set_failpoint(failpoint: Option<Failpoint>) {
    ACTIVE.set(failpoint);
}
