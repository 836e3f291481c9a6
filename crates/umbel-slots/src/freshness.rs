//! [`Contact`]: the moment of a successful request, and how old it may be.

use std::time::Duration;

/// Durations of the protocol. They are part of the replicated log, equal at all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotTimes {
    /// Age up to which a contact proves that nothing was deleted since.
    pub fresh: Duration,
    /// Largest difference between the clocks of the store's servers.
    pub skew: Duration,
    /// Age below which nothing is deleted. At least `4 * fresh + 16 * skew`.
    pub keep: Duration,
}

impl Default for SlotTimes {
    fn default() -> SlotTimes {
        let seconds = Duration::from_secs;
        SlotTimes { fresh: seconds(60), skew: seconds(15), keep: seconds(2 * 3600) }
    }
}

impl SlotTimes {
    /// Whether the time between two contacts is at most [`SlotTimes::fresh`] by both clocks.
    pub fn is_fresh(&self, earlier: Contact, now: Contact) -> bool {
        self.is_within(earlier, now, self.fresh)
    }

    /// Whether the time between two contacts is at most `limit` by both clocks.
    pub fn is_within(&self, earlier: Contact, now: Contact, limit: Duration) -> bool {
        // Two servers of the store can have answered. A clock that went back further proves
        // nothing.
        let is_later = now.store_micros.saturating_add(micros(self.skew)) >= earlier.store_micros;
        let stored = now.store_micros.saturating_sub(earlier.store_micros);
        is_later && stored <= micros(limit) && now.node.saturating_sub(earlier.node) <= limit
    }

    /// Age at a contact of an object that was created at this time of the store; `None` for an
    /// object from the future, or without a time.
    pub fn age_micros(&self, now: Contact, created_micros: Option<u64>) -> Option<u64> {
        let created = created_micros?;
        let is_past = created <= now.store_micros.saturating_add(micros(self.skew));
        is_past.then(|| now.store_micros.saturating_sub(created))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(node: u64, store: u64) -> Contact {
        Contact { node: Duration::from_secs(node), store_micros: store * 1_000_000 }
    }

    #[test]
    fn both_clocks_limit_the_age_of_a_contact() {
        let times = SlotTimes::default();
        let earlier = contact(1000, 5000);
        for (node, store, is_fresh) in [
            (1060, 5060, true),
            (1061, 5060, false),
            (1060, 5061, false),
            (1060, 4985, true),
            (1060, 4984, false),
        ] {
            let found = times.is_fresh(earlier, contact(node, store));
            assert_eq!(found, is_fresh, "{node} by the node, {store} by the store");
        }
    }

    #[test]
    fn objects_from_the_future_have_no_age() {
        let times = SlotTimes::default();
        let age = |seconds: u64| times.age_micros(contact(0, 100), Some(seconds * 1_000_000));
        assert_eq!(age(90), Some(10_000_000));
        assert_eq!(age(115), Some(0));
        assert_eq!(age(116), None);
        assert_eq!(times.age_micros(contact(0, 100), None), None);
    }
}
