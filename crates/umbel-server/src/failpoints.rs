//! Bugs to plant in groups of consumers and in what reads requests, so that their model tests can
//! prove that they find them.
//! Only tests can plant one, and each only for its own thread.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// What is to be parked and not written yet is not held.
    FloorIgnoresParking,
    /// The first event that is held counts as done.
    FloorTooFar,
    /// The floor is what was taken in.
    FloorIsLast,
    /// Whoever acknowledges an event, it is done.
    AckOfOthers,
    /// What was on the way to a consumer that goes away is left out.
    DisconnectForgets,
    /// A consumer gets one more than it has room for.
    RoomIgnored,
    /// Nothing is ever late.
    TimeoutForgotten,
    /// It is not counted how often an event was sent.
    RetryNotCounted,
    /// An event is sent once more than it may be.
    RetryOnceMore,
    /// What is to be parked is left out.
    ParkSkips,
    /// What is to be sent again is left out.
    RetrySkips,
    /// The events of a pin go to whoever has room.
    PinIgnored,
    /// The one consumer that gets all is the last one.
    SingleIsLast,
    /// What is parked counts before it is written.
    ParkedUnwritten,
    /// What is sent again counts as done once it is read.
    ReplayTruncatesEarly,
    /// A replay leaves its first event out.
    ReplaySkips,
    /// Of each page that is read the first event is left out.
    PageSkips,
    /// Who does not say which revision he expects expects any.
    ExpectedUnsaid,
    /// An identifier that is none is all zeros.
    IdIsZeros,
    /// A direction that nobody knows is forwards.
    DirectionUnknown,
    /// An append that breaks off is one that ends there.
    BreakIsEnd,
    /// A message that is none is a failure of the server.
    NoMessageIsOurs,
    /// A part that says nothing is left out.
    PartSkipped,
    /// An operation of a batch that says nothing is left out.
    KindUnsaid,
    /// The first condition of a batch is left out.
    ConditionSkipped,
    /// A keyspace that is not there is the default one.
    KeyspaceIsDefault,
    /// A condition that does not hold is a failure of the server.
    ConflictIsOurs,
    /// A scan does not mind its prefix.
    PrefixForgotten,
    /// A scan does not mind that it is to go backwards.
    ReverseForgotten,
}

/// Whether it is planted.
#[cfg(not(test))]
pub const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether it is planted.
#[cfg(test)]
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Plants a bug for this thread, or takes it out.
#[cfg(test)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}
