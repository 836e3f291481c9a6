//! [`Quick`]: whether short reads are done where they are asked for.
//!
//! A read of one event that lies in memory takes some microseconds; to have a thread of its own do
//! it takes twice as long again, for two wake-ups. One that has to wait for the disk would keep
//! the calls of others waiting meanwhile. Which it is going to be nobody knows: so the last ones
//! tell. After one that took long all go to threads for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::{Clock, Env};

use crate::limits::{QUICK_PAUSE, QUICK_TIME};

/// Whether short reads are done where they are asked for.
#[derive(Debug)]
pub struct Quick {
    clock: Arc<dyn Clock>,
    /// Until when they are not, in microseconds of the clock.
    paused_until: AtomicU64,
}

impl Quick {
    /// They are, until one takes long.
    pub fn new(env: &Env) -> Quick {
        Quick { clock: Arc::clone(&env.clock), paused_until: AtomicU64::new(0) }
    }

    /// Whether the next one is.
    pub fn may(&self) -> bool {
        micros(self.clock.now()) >= self.paused_until.load(Ordering::Relaxed)
    }

    /// Does one.
    pub fn time<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.clock.now();
        let done = read();
        let after = self.clock.now();
        if after.saturating_sub(before) > QUICK_TIME {
            self.paused_until.store(micros(after.saturating_add(QUICK_PAUSE)), Ordering::Relaxed);
        }
        done
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that goes on when it is told to.
    #[derive(Debug, Default)]
    struct Told(AtomicU64);

    impl Told {
        fn go_on(&self, time: Duration) {
            self.0.fetch_add(micros(time), Ordering::Relaxed);
        }
    }

    impl Clock for Told {
        fn now(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn wall_micros(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_slow_one_sends_those_that_follow_to_threads_for_a_while() {
        let clock = Arc::new(Told::default());
        let quick =
            Quick::new(&Env { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Env::system() });
        quick.time(|| clock.go_on(QUICK_TIME));
        assert!(quick.may());
        quick.time(|| clock.go_on(QUICK_TIME + Duration::from_micros(1)));
        assert!(!quick.may());
        clock.go_on(QUICK_PAUSE - Duration::from_millis(1));
        assert!(!quick.may());
        clock.go_on(Duration::from_millis(1));
        assert!(quick.may());
    }
}
