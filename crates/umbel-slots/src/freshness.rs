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
    /// Whether the time from this contact to a later one is at most `limit` by both clocks.
    pub fn is_fresh(&self, now: Contact, limit: Duration) -> bool {
        let limit_micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        // A store whose clock went back proves nothing.
        let stored = now.store_micros.checked_sub(self.store_micros);
        now.node.saturating_sub(self.node) <= limit && stored.is_some_and(|it| it <= limit_micros)
    }
}
