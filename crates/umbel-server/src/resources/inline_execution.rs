//! [`Quick`]: whether short reads are done where they are asked for.
//!
//! A read of one event that lies in memory takes some microseconds; to have a thread of its own do
//! it takes twice as long again, for two wake-ups. One that has to wait for the disk would keep
//! the calls of others waiting meanwhile. Which it is going to be nobody knows: so the last ones
//! tell. After one that took long all go to threads for a while. One that only had its processor
//! taken away says nothing about the disk: where clients are on the same machine that happens to
//! one read in some hundreds, and would keep all of them on threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::Env;

use crate::limits::{QUICK_PAUSE, QUICK_TIME};

/// Whether short reads are done where they are asked for.
#[derive(Debug)]
pub struct Quick {
    env: Env,
    /// Until when they are not, in microseconds of the clock.
    paused_until: AtomicU64,
}

impl Quick {
    /// They are, until one takes long.
    pub fn new(env: &Env) -> Quick {
        Quick { env: env.clone(), paused_until: AtomicU64::new(0) }
    }

    /// Whether the next one is.
    pub fn may(&self) -> bool {
        micros(self.env.clock.now()) >= self.paused_until.load(Ordering::Relaxed)
    }

    /// Does one.
    pub fn time<T>(&self, read: impl FnOnce() -> T) -> T {
        let Env { clock, resources, .. } = &self.env;
        let (before, waits) = (clock.now(), resources.waits());
        let done = read();
        let after = clock.now();
        let has_waited = || waits.is_none() || resources.waits() != waits;
        if after.saturating_sub(before) > QUICK_TIME && has_waited() {
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
    use std::sync::Arc;

    use umbel_env::{Clock, Resources};

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

    /// A system that says how often it has waited, where it does.
    #[derive(Debug, Default)]
    struct Waits(Option<AtomicU64>);

    impl Resources for Waits {
        fn memory_bytes(&self) -> Option<u64> {
            None
        }

        fn open_files_max(&self) -> Option<u64> {
            None
        }

        fn waits(&self) -> Option<u64> {
            self.0.as_ref().map(|waits| waits.load(Ordering::Relaxed))
        }
    }

    fn quick(clock: &Arc<Told>, waits: &Arc<Waits>) -> Quick {
        let (clock, resources) = (Arc::clone(clock), Arc::clone(waits));
        Quick::new(&Env { clock, resources, ..Env::system() })
    }

    #[test]
    fn one_whose_processor_was_taken_away_says_nothing() {
        let (clock, waits) = (Arc::default(), Arc::new(Waits(Some(AtomicU64::new(7)))));
        let quick = quick(&clock, &waits);
        quick.time(|| clock.go_on(QUICK_TIME * 9));
        assert!(quick.may());
        quick.time(|| {
            clock.go_on(QUICK_TIME * 9);
            waits.0.as_ref().unwrap().fetch_add(1, Ordering::Relaxed);
        });
        assert!(!quick.may());
    }

    #[test]
    fn a_slow_one_sends_those_that_follow_to_threads_for_a_while() {
        let clock = Arc::default();
        let quick = quick(&clock, &Arc::default());
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
