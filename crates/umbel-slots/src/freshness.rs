//! [`Contact`]: the moment of a successful request, and how old it may be.

use std::time::Duration;

/// Durations of the protocol. They are part of the replicated log, equal at all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotTimes {
    /// Age up to which a contact proves that nothing was deleted since.
    pub fresh: Duration,
    /// Largest difference between the clocks of the store's servers, and between the times that a
    /// node's two clocks measure. More shows that one of them stood still, or was set.
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
    /// Whether the time between two contacts is at most [`SlotTimes::fresh`] by all clocks.
    pub fn is_fresh(&self, earlier: Contact, now: Contact) -> bool {
        self.is_within(earlier, now, self.fresh)
    }

    /// Whether the time between two contacts is at most `limit` by the store's clock and by the
    /// node's own, and the node's wall clock agrees with the latter.
    pub fn is_within(&self, earlier: Contact, now: Contact, limit: Duration) -> bool {
        if !self.has_steady_clocks(earlier, now) {
            return false;
        }
        // Two servers of the store can have answered. A clock that went back further proves
        // nothing.
        let is_later = now.store_micros.saturating_add(micros(self.skew)) >= earlier.store_micros;
        let stored = now.store_micros.saturating_sub(earlier.store_micros);
        is_later && stored <= micros(limit) && now.node.saturating_sub(earlier.node) <= limit
    }

    /// Whether the node's wall clock and its monotonic clock moved by the same time, but for
    /// [`SlotTimes::skew`]. A pause of the machine that only the wall clock shows, together with a
    /// store's clock that goes back, makes an old contact look fresh.
    fn has_steady_clocks(&self, earlier: Contact, now: Contact) -> bool {
        let node = i128::from(micros(now.node)) - i128::from(micros(earlier.node));
        let wall = i128::from(now.wall_micros) - i128::from(earlier.wall_micros);
        wall.abs_diff(node) <= u128::from(micros(self.skew))
    }

    /// Whether at least `limit` passed between two contacts, by the store's clock and by the node's
    /// own.
    pub fn is_past(&self, earlier: Contact, now: Contact, limit: Duration) -> bool {
        let stored = now.store_micros.saturating_sub(earlier.store_micros);
        stored >= micros(limit) && now.node.saturating_sub(earlier.node) >= limit
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

/// Moment of a successful request, by the node's clocks and the store's. A pause of the node's
/// machine can be invisible to the first ones, a jump of the store's clock to the last one.
///
/// A request has two contacts: one that is not after its effect, for comparisons with later ones,
/// and one that is not before its effect, for comparisons with earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Contact {
    /// The node's monotonic clock.
    pub node: Duration,
    /// The node's wall clock, in microseconds.
    pub wall_micros: u64,
    /// The store's time, in microseconds.
    pub store_micros: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(node: u64, store: u64) -> Contact {
        let wall_micros = (node + 7000) * 1_000_000;
        Contact { node: Duration::from_secs(node), wall_micros, store_micros: store * 1_000_000 }
    }

    /// Story: a machine paused, which its monotonic clock did not show. The store's clock went
    /// back meanwhile, and the contact before the pause looked fresh.
    #[test]
    fn contact_is_not_fresh_after_the_clocks_of_the_node_moved_apart() {
        let times = SlotTimes::default();
        let earlier = contact(1000, 5000);
        for (wall, is_fresh) in [(0, true), (15, true), (16, false), (-15, true), (-16, false)] {
            let mut now = contact(1010, 5010);
            now.wall_micros = now.wall_micros.saturating_add_signed(wall * 1_000_000);
            assert_eq!(times.is_fresh(earlier, now), is_fresh, "{wall} s");
        }
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
