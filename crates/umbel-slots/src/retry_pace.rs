//! [`RetryPace`]: how long a caller waits before a step that repeats an earlier one.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::freshness::SlotTimes;

/// Wait before the second repetition. The first one has none, since most failures are short.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// Doublings of the wait, at most.
const DOUBLINGS_MAX: u32 = 20;

/// Repetitions of a state machine without progress (L5). Each one waits twice as long as the one
/// before, up to a quarter of [`SlotTimes::fresh`].
///
/// It changes no request, so that it counts for no comparison of state machines.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetryPace {
    repetitions: u32,
    is_waiting: bool,
    /// The highest slot that counted as progress.
    reached: Option<u64>,
}

impl RetryPace {
    /// The last step made progress.
    pub fn progress(&mut self) {
        (self.repetitions, self.is_waiting) = (0, false);
    }

    /// The last step reached this slot, which is progress unless it did so before.
    pub fn reach(&mut self, number: u64) {
        if self.reached.is_none_or(|reached| number > reached) {
            self.reached = Some(number);
            self.progress();
        }
    }

    /// The next step repeats an earlier one.
    pub fn repeat(&mut self) {
        self.repetitions = self.repetitions.saturating_add(1);
        self.is_waiting = true;
    }

    /// The next step is to follow at once.
    pub fn go_on(&mut self) {
        self.is_waiting = false;
    }

    /// Wait before the next step.
    pub fn wait(&self, times: &SlotTimes) -> Duration {
        match self.repetitions.checked_sub(2) {
            Some(doublings) if self.is_waiting => {
                let wait = WAIT_MIN * (1 << doublings.min(DOUBLINGS_MAX));
                wait.min(times.fresh / 4)
            }
            _ => Duration::ZERO,
        }
    }
}

impl PartialEq for RetryPace {
    fn eq(&self, _: &RetryPace) -> bool {
        true
    }
}

impl Eq for RetryPace {}

impl Hash for RetryPace {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_until_there_is_progress() {
        let times = SlotTimes::default();
        let mut pace = RetryPace::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            pace.repeat();
            waits.push(pace.wait(&times).as_millis());
        }
        assert_eq!(
            waits,
            [0, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 15_000, 15_000, 15_000]
        );
        pace.go_on();
        assert_eq!(pace.wait(&times), Duration::ZERO);
        pace.repeat();
        assert_eq!(pace.wait(&times), times.fresh / 4);
        pace.reach(5);
        for number in [5, 4] {
            pace.repeat();
            pace.reach(number);
        }
        assert_eq!(pace.wait(&times).as_millis(), 100, "no progress");
        pace.reach(6);
        pace.repeat();
        assert_eq!(pace.wait(&times), Duration::ZERO);
        (0..100).for_each(|_| pace.repeat());
        assert_eq!(pace.wait(&times), times.fresh / 4);
    }
}
