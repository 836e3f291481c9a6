//! [`Contact`]: the moment of a successful request, and how old it may be.

use std::time::Duration;

/// Durations of the protocol. They are part of the replicated log, equal at all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotTimes {
    /// Age up to which a contact proves that nothing was deleted since.
    pub fresh: Duration,
    /// Age below which nothing is deleted. At least `4 * fresh`.
    pub keep: Duration,
}

impl Default for SlotTimes {
    fn default() -> SlotTimes {
        SlotTimes { fresh: Duration::from_secs(60), keep: Duration::from_secs(2 * 3600) }
    }
}

/// A duration in the microseconds of the store's times.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Moment of a successful request, by two clocks: the node's own, and the store's. A pause of the
/// node's machine can be invisible to the first one, a jump of the store's clock to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Contact {
    /// The node's clock before the request.
    pub node: Duration,
    /// The store's time in the answer, in microseconds.
    pub store_micros: u64,
}

impl Contact {
    /// Age of an object that was created at this time of the store; `None` for an object from the
    /// future, or without a time.
    pub fn age_micros(&self, created_micros: Option<u64>) -> Option<u64> {
        self.store_micros.checked_sub(created_micros?)
    }

    /// Whether the time from this contact to a later one is at most `limit` by both clocks.
    pub fn is_fresh(&self, now: Contact, limit: Duration) -> bool {
        // A store whose clock went back proves nothing.
        let stored = now.store_micros.checked_sub(self.store_micros);
        now.node.saturating_sub(self.node) <= limit && stored.is_some_and(|it| it <= micros(limit))
    }
}
