//! [`Advising`]: when a background thread has the advisor decide anew without being called.

use std::time::Duration;

/// How long it waits after reads were seen.
const WAIT: Duration = Duration::from_secs(1);
/// How long it waits at most where nobody reads.
const WAIT_MAX: Duration = Duration::from_secs(64);

/// When to decide next. Guarded by the work lock.
#[derive(Debug)]
pub struct Advising {
    at: Duration,
    wait: Duration,
    /// Gets of all keyspaces when it was last decided.
    gets: u64,
}

impl Default for Advising {
    fn default() -> Advising {
        Advising { at: Duration::ZERO, wait: WAIT, gets: 0 }
    }
}

impl Advising {
    /// For how long nobody needs to look.
    pub fn left(&self, now: Duration) -> Duration {
        self.at.saturating_sub(now)
    }

    /// Claims the decision that is due at `now`, after so many gets, so that no other thread makes
    /// it too.
    pub fn claim(&mut self, now: Duration, gets: u64) {
        let is_read = gets != self.gets;
        self.gets = gets;
        self.wait = if is_read { WAIT } else { (self.wait * 2).min(WAIT_MAX) };
        self.at = now + self.wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_seldom_where_nobody_reads() {
        let mut advising = Advising::default();
        let mut now = Duration::from_secs(100);
        assert!(advising.left(now).is_zero());
        advising.claim(now, 7);
        assert_eq!(advising.left(now), WAIT);
        for _ in 0..10 {
            now += advising.left(now);
            assert!(advising.left(now).is_zero());
            advising.claim(now, 7);
        }
        assert_eq!(advising.left(now), WAIT_MAX);
        advising.claim(now, 8);
        assert_eq!(advising.left(now), WAIT);
    }
}
