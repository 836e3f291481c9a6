//! [`PageLimits`]: when a page of events ends.
//!
//! The first page of a read is short: it passes few hidden events, and has no limit of time. Later
//! pages are read by the threads of the [`ReadPool`](crate::resources::read_pool::ReadPool), where
//! reads take turns. Such a page ends after some processor time. The time in which it waits for the
//! disk does not count, so that pages of a store on a slow disk are as long as others.

use std::sync::Arc;
use std::time::Duration;

use umbel_env::Clock;

use crate::limits::{EXAMINED_EVENTS_MAX, HIDDEN_EVENTS_MAX, PAGE_CPU_TIME, PAGE_EVENTS_MAX};

/// Number of examined events between two checks of the time.
const STEP_EVENTS: usize = 64;

/// Limits of one page, besides its bytes.
#[derive(Debug)]
pub struct PageLimits {
    /// Maximum number of events in the page.
    pub events_max: usize,
    /// Maximum number of examined events, with those in the page.
    pub examined_max: usize,
    /// Clock of the time limit; `None` without the limit.
    clock: Option<Arc<dyn Clock>>,
}

/// Time limit of a page that is being read.
#[derive(Debug)]
pub struct PageTimer<'a> {
    clock: Option<&'a dyn Clock>,
    began: Duration,
    /// Number of checks before the clock is read again.
    unchecked: usize,
}

impl PageLimits {
    /// Limits of a page that runs inline: a read that may have to search reads no event.
    pub fn inline(events_max: usize, examined_max: usize) -> PageLimits {
        PageLimits { events_max, examined_max, clock: None }
    }

    /// Limits of the first page of a read.
    pub fn first(events_max: usize) -> PageLimits {
        let events_max = events_max.min(PAGE_EVENTS_MAX);
        PageLimits { events_max, examined_max: events_max + HIDDEN_EVENTS_MAX, clock: None }
    }

    /// Limits of a page in the read pool.
    pub fn pooled(events_max: usize, clock: &Arc<dyn Clock>) -> PageLimits {
        let events_max = events_max.min(PAGE_EVENTS_MAX);
        let clock = Some(Arc::clone(clock));
        PageLimits { events_max, examined_max: EXAMINED_EVENTS_MAX, clock }
    }

    /// Whether the page ends after some processor time.
    pub fn has_time_limit(&self) -> bool {
        self.clock.is_some()
    }

    /// Maximum number of events to examine before the next check, if `examined` are examined; 0 if
    /// the page ends.
    pub fn next_step(&self, examined: usize) -> usize {
        let left = self.examined_max.saturating_sub(examined);
        if self.has_time_limit() { left.min(STEP_EVENTS) } else { left }
    }

    /// Starts the time limit.
    pub fn timer(&self) -> PageTimer<'_> {
        let clock = self.clock.as_deref();
        PageTimer { clock, began: clock.map(cpu_time).unwrap_or_default(), unchecked: 0 }
    }
}

impl PageTimer<'_> {
    /// Whether the time has passed, after the read of an event. Reads the clock from time to time.
    pub fn has_passed_after_event(&mut self) -> bool {
        self.unchecked += 1;
        if self.unchecked < STEP_EVENTS / 4 {
            return false;
        }
        self.has_passed()
    }

    /// Whether the time has passed.
    pub fn has_passed(&mut self) -> bool {
        self.unchecked = 0;
        let Some(clock) = self.clock else { return false };
        cpu_time(clock).saturating_sub(self.began) >= PAGE_CPU_TIME
    }
}

/// Processor time of the thread; the time of the clock where the system does not report it.
fn cpu_time(clock: &dyn Clock) -> Duration {
    clock.thread_time().unwrap_or_else(|| clock.now())
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Clock whose processor time advances by a step at each reading.
    #[derive(Debug, Default)]
    pub struct BusyClock {
        /// Milliseconds that have passed.
        pub millis: AtomicU64,
        /// Microseconds of processor time; `None` where the system does not report it.
        pub cpu_micros: Option<AtomicU64>,
        /// Microseconds of a step.
        pub step_micros: u64,
    }

    impl Clock for BusyClock {
        fn now(&self) -> Duration {
            Duration::from_millis(self.millis.load(Ordering::Relaxed))
        }

        fn wall_micros(&self) -> u64 {
            1
        }

        fn thread_time(&self) -> Option<Duration> {
            let micros = self.cpu_micros.as_ref()?;
            Some(Duration::from_micros(micros.fetch_add(self.step_micros, Ordering::Relaxed)))
        }
    }

    fn limits(cpu_micros: Option<AtomicU64>) -> (Arc<BusyClock>, PageLimits) {
        let clock = Arc::new(BusyClock { cpu_micros, ..BusyClock::default() });
        let limits = PageLimits::pooled(10, &(Arc::clone(&clock) as Arc<dyn Clock>));
        (clock, limits)
    }

    #[test]
    fn only_processor_time_ends_a_page() {
        let most = PAGE_CPU_TIME.as_micros() as u64;
        let (clock, limits) = limits(Some(AtomicU64::new(7)));
        let mut timer = limits.timer();
        clock.millis.fetch_add(60_000, Ordering::Relaxed);
        assert!(!timer.has_passed(), "the page waited for the disk");
        let cpu_micros = clock.cpu_micros.as_ref().unwrap();
        cpu_micros.fetch_add(most - 1, Ordering::Relaxed);
        assert!(!timer.has_passed());
        cpu_micros.fetch_add(1, Ordering::Relaxed);
        assert!(timer.has_passed());
        assert!((0..STEP_EVENTS).any(|_| timer.has_passed_after_event()));
    }

    #[test]
    fn time_ends_a_page_where_the_processor_time_is_unknown() {
        let (clock, limits) = limits(None);
        let mut timer = limits.timer();
        assert!(!timer.has_passed());
        clock.millis.fetch_add(PAGE_CPU_TIME.as_millis() as u64, Ordering::Relaxed);
        assert!(timer.has_passed());
    }

    #[test]
    fn first_page_has_no_time_limit_and_few_hidden_events() {
        let first = PageLimits::first(10);
        assert!(!first.has_time_limit() && !first.timer().has_passed());
        assert_eq!((first.next_step(0), first.next_step(266)), (266, 0));
        let (_, pooled) = limits(None);
        assert_eq!(pooled.next_step(EXAMINED_EVENTS_MAX - 1), 1);
        assert_eq!((pooled.next_step(0), pooled.next_step(EXAMINED_EVENTS_MAX)), (STEP_EVENTS, 0));
        assert_eq!(PageLimits::first(usize::MAX).events_max, PAGE_EVENTS_MAX);
    }
}
