//! [`InlinePolicy`]: decides whether short operations run on the calling thread.
//!
//! A read or an append of one event in memory takes some microseconds. Running such an operation on
//! another thread takes three times as long, because of two wake-ups. But an inline operation that
//! waits for the disk blocks the calls of other clients. No caller knows in advance whether an
//! operation will wait, so recent operations decide. After a slow operation, all operations run on
//! other threads for a while.
//!
//! An operation that was slow only because its thread was preempted does not count as slow. With
//! clients on the same machine, one read in some hundreds is preempted, which would keep all reads
//! on other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::Env;

use crate::limits::{INLINE_PAUSE, INLINE_TIME_MAX};

/// Decides whether short operations run inline.
#[derive(Debug)]
pub struct InlinePolicy {
    env: Env,
    /// End of the pause of inline operations, in microseconds of the clock.
    paused_until: AtomicU64,
    /// Number of inline operations.
    #[cfg(test)]
    pub runs: AtomicU64,
}

impl InlinePolicy {
    /// Creates a policy that allows inline operations.
    pub fn new(env: &Env) -> InlinePolicy {
        InlinePolicy {
            env: env.clone(),
            paused_until: AtomicU64::new(0),
            #[cfg(test)]
            runs: AtomicU64::new(0),
        }
    }

    /// Whether the next operation may run inline.
    pub fn is_allowed(&self) -> bool {
        micros(self.env.clock.now()) >= self.paused_until.load(Ordering::Relaxed)
    }

    /// Runs an operation inline.
    pub fn run<T>(&self, operation: impl FnOnce() -> T) -> T {
        #[cfg(test)]
        self.runs.fetch_add(1, Ordering::Relaxed);
        let Env { clock, resources, .. } = &self.env;
        let (before, waits) = (clock.now(), resources.context_switches());
        let done = operation();
        let after = clock.now();
        let has_waited = || waits.is_none() || resources.context_switches() != waits;
        if after.saturating_sub(before) > INLINE_TIME_MAX && has_waited() {
            self.paused_until.store(micros(after.saturating_add(INLINE_PAUSE)), Ordering::Relaxed);
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

    /// Clock that advances only when the test sets it.
    #[derive(Debug, Default)]
    struct StubClock(AtomicU64);

    impl StubClock {
        fn go_on(&self, time: Duration) {
            self.0.fetch_add(micros(time), Ordering::Relaxed);
        }
    }

    impl Clock for StubClock {
        fn now(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn wall_micros(&self) -> u64 {
            0
        }
    }

    /// System that reports a given number of voluntary waits, if any.
    #[derive(Debug, Default)]
    struct WaitCounter(Option<AtomicU64>);

    impl Resources for WaitCounter {
        fn memory_bytes(&self) -> Option<u64> {
            None
        }

        fn open_files_max(&self) -> Option<u64> {
            None
        }

        fn context_switches(&self) -> Option<u64> {
            self.0.as_ref().map(|waits| waits.load(Ordering::Relaxed))
        }
    }

    fn quick(clock: &Arc<StubClock>, waits: &Arc<WaitCounter>) -> InlinePolicy {
        let (clock, resources) = (Arc::clone(clock), Arc::clone(waits));
        InlinePolicy::new(&Env { clock, resources, ..Env::system() })
    }

    #[test]
    fn preempted_call_is_not_measured() {
        let (clock, waits) = (Arc::default(), Arc::new(WaitCounter(Some(AtomicU64::new(7)))));
        let quick = quick(&clock, &waits);
        quick.run(|| clock.go_on(INLINE_TIME_MAX * 9));
        assert!(quick.is_allowed());
        quick.run(|| {
            clock.go_on(INLINE_TIME_MAX * 9);
            waits.0.as_ref().unwrap().fetch_add(1, Ordering::Relaxed);
        });
        assert!(!quick.is_allowed());
    }

    #[test]
    fn slow_call_moves_later_ones_to_threads() {
        let clock = Arc::default();
        let quick = quick(&clock, &Arc::default());
        quick.run(|| clock.go_on(INLINE_TIME_MAX));
        assert!(quick.is_allowed());
        quick.run(|| clock.go_on(INLINE_TIME_MAX + Duration::from_micros(1)));
        assert!(!quick.is_allowed());
        clock.go_on(INLINE_PAUSE - Duration::from_millis(1));
        assert!(!quick.is_allowed());
        clock.go_on(Duration::from_millis(1));
        assert!(quick.is_allowed());
    }
}
