//! [`AdvisorSchedule`]: when a background thread runs the advisor without a call.

use std::time::Duration;

/// Interval between decisions of the advisor while clients read.
const WAIT: Duration = Duration::from_secs(1);
/// Longest interval between decisions of the advisor while no client reads.
const WAIT_MAX: Duration = Duration::from_secs(64);

/// Time of the advisor's next decision, guarded by the work lock.
#[derive(Debug)]
pub struct AdvisorSchedule {
    began_at: Duration,
    wait: Duration,
    /// Number of gets of all keyspaces at the advisor's last decision.
    gets: u64,
}

impl Default for AdvisorSchedule {
    fn default() -> AdvisorSchedule {
        AdvisorSchedule { began_at: Duration::ZERO, wait: WAIT, gets: 0 }
    }
}

impl AdvisorSchedule {
    /// Time until the advisor's next decision is due.
    pub fn remaining(&self, now: Duration) -> Duration {
        self.began_at.saturating_sub(now)
    }

    /// Claims the decision that is due at `now`, after `gets` gets, so that no other thread makes
    /// the same decision.
    pub fn begin(&mut self, now: Duration, gets: u64) {
        let is_read = gets != self.gets;
        self.gets = gets;
        self.wait = if is_read { WAIT } else { (self.wait * 2).min(WAIT_MAX) };
        self.began_at = now + self.wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_store_is_checked_rarely() {
        let mut advising = AdvisorSchedule::default();
        let mut now = Duration::from_secs(100);
        assert!(advising.remaining(now).is_zero());
        advising.begin(now, 7);
        assert_eq!(advising.remaining(now), WAIT);
        for _ in 0..10 {
            now += advising.remaining(now);
            assert!(advising.remaining(now).is_zero());
            advising.begin(now, 7);
        }
        assert_eq!(advising.remaining(now), WAIT_MAX);
        advising.begin(now, 8);
        assert_eq!(advising.remaining(now), WAIT);
    }
}
