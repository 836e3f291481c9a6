//! [`StoreClock`]: the wall clock as far as the store believes it.
//!
//! INVARIANT: the clock advances by at most [`CLOCK_JUMP_SECONDS_MAX`] more than the monotonic
//! clock, compared with the furthest time so far. Times of events never decrease, so one reading
//! years ahead would stamp every later event. A wall clock that was set back and then corrected is
//! believed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::Clock;

use crate::limits::{CLOCK_GAP_SECONDS_MAX, CLOCK_JUMP_SECONDS_MAX};

/// Ticks of 100 ns in a microsecond.
const TICKS_PER_MICRO: u64 = 10;
const MICROS_PER_SECOND: u64 = 1_000_000;

/// A wall clock whose jumps ahead are rejected.
#[derive(Debug)]
pub struct StoreClock {
    clock: Arc<dyn Clock>,
    /// The most microseconds from the monotonic clock to the believed wall clock.
    offset: AtomicI64,
    /// Microseconds by which the wall clock is ahead of the believed one, if it is rejected.
    rejected: AtomicU64,
    /// Whether the wall clock was rejected at the open, where nothing else says the time.
    is_unknown: AtomicBool,
}

/// The wall clock was rejected at the open: it is this far ahead of the last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTime {
    /// Days from the last event to the wall clock.
    pub days: u64,
}

impl StoreClock {
    /// Creates a clock of a store whose last event has the time `last_created`, in ticks; 0 without
    /// events. `is_confirmed` says that the operator confirmed the wall clock.
    pub fn new(clock: Arc<dyn Clock>, last_created: u64, is_confirmed: bool) -> StoreClock {
        let (wall, monotonic) = read(&*clock);
        let last = last_created / TICKS_PER_MICRO;
        let gap = wall.saturating_sub(last);
        let is_unknown =
            last > 0 && !is_confirmed && gap > CLOCK_GAP_SECONDS_MAX * MICROS_PER_SECOND;
        let (believed, rejected) = if is_unknown { (last, gap) } else { (wall, 0) };
        StoreClock {
            clock,
            offset: AtomicI64::new(difference(believed, monotonic)),
            rejected: AtomicU64::new(rejected),
            is_unknown: AtomicBool::new(is_unknown),
        }
    }

    /// The believed time in ticks of 100 ns since 1970.
    pub fn now(&self) -> u64 {
        let (wall, monotonic) = read(&*self.clock);
        let believed = self.offset.load(Ordering::Relaxed);
        let offset = difference(wall, monotonic);
        let ahead = offset.saturating_sub(believed);
        // The believed time is that of the last event, which may be old.
        let seconds_max = match self.is_unknown.load(Ordering::Relaxed) {
            true => CLOCK_GAP_SECONDS_MAX,
            false => CLOCK_JUMP_SECONDS_MAX,
        };
        let time = match u64::try_from(ahead) {
            Ok(ahead) if ahead > seconds_max * MICROS_PER_SECOND => {
                self.rejected.store(ahead, Ordering::Relaxed);
                monotonic.saturating_add_signed(believed)
            }
            _ => {
                if ahead > 0 {
                    self.offset.fetch_max(offset, Ordering::Relaxed);
                }
                if self.rejected.load(Ordering::Relaxed) > 0 {
                    self.rejected.store(0, Ordering::Relaxed);
                    self.is_unknown.store(false, Ordering::Relaxed);
                }
                wall
            }
        };
        time.saturating_mul(TICKS_PER_MICRO)
    }

    /// The believed time with which an event may be stamped.
    ///
    /// # Errors
    /// The wall clock was rejected at the open, and was not corrected since.
    pub fn stamp(&self) -> Result<u64, UnknownTime> {
        let now = self.now();
        if !self.is_unknown.load(Ordering::Relaxed) {
            return Ok(now);
        }
        Err(UnknownTime { days: self.rejected().as_secs() / (24 * 60 * 60) })
    }

    /// The wall clock in ticks, believed or not.
    pub fn wall(&self) -> u64 {
        self.clock.wall_micros().saturating_mul(TICKS_PER_MICRO)
    }

    /// The time by which the wall clock is ahead of the believed time; zero unless it is rejected.
    pub fn rejected(&self) -> Duration {
        Duration::from_micros(self.rejected.load(Ordering::Relaxed))
    }
}

/// The wall clock and the monotonic clock in microseconds.
fn read(clock: &dyn Clock) -> (u64, u64) {
    let wall = clock.wall_micros();
    (wall, micros(clock.now_with_suspends()))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn difference(wall: u64, monotonic: u64) -> i64 {
    let wall = i64::try_from(wall).unwrap_or(i64::MAX);
    wall.saturating_sub(i64::try_from(monotonic).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use umbel_base::ignore_poison::IgnorePoison;

    use super::*;

    const YEAR: u64 = 365 * 24 * 60 * 60;
    const SECOND: u64 = 10_000_000;

    /// A clock with these seconds of the wall clock and of the monotonic one.
    #[derive(Debug, Default)]
    struct ManualClock(Mutex<(u64, u64)>);

    impl Clock for ManualClock {
        fn now(&self) -> Duration {
            Duration::from_secs(self.0.lock().ignore_poison().1)
        }

        fn wall_micros(&self) -> u64 {
            self.0.lock().ignore_poison().0 * 1_000_000
        }
    }

    fn clock(wall: u64) -> Arc<ManualClock> {
        Arc::new(ManualClock(Mutex::new((wall, 7))))
    }

    fn advance(clock: &ManualClock, wall: i64, monotonic: u64) {
        let mut times = clock.0.lock().ignore_poison();
        times.0 = times.0.saturating_add_signed(wall);
        times.1 += monotonic;
    }

    #[test]
    fn jump_ahead_is_not_believed_until_it_ends() {
        let wall = clock(50 * YEAR);
        let store = StoreClock::new(Arc::<ManualClock>::clone(&wall), 0, false);
        advance(&wall, 200, 0);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 200) * SECOND), "a correction of minutes");
        advance(&wall, 10 * YEAR as i64, 5);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 205) * SECOND), "the time goes on");
        assert_eq!(store.rejected().as_secs(), 10 * YEAR - 5);
        advance(&wall, 30, 30);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 235) * SECOND));
        advance(&wall, -(10 * YEAR as i64), 0);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 230) * SECOND), "the clock was corrected");
        assert_eq!(store.rejected(), Duration::ZERO);
        advance(&wall, -(20 * YEAR as i64), 1);
        assert_eq!(store.stamp(), Ok((30 * YEAR + 230) * SECOND), "the clock was set back");
        advance(&wall, 20 * YEAR as i64, 1);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 230) * SECOND), "and corrected");
        advance(&wall, -60 * YEAR as i64, 1);
        assert_eq!(store.stamp(), Ok(0), "a clock before 1970 gives no time");
    }

    #[test]
    fn clock_years_after_the_last_event_is_rejected_at_the_open() {
        let last = 50 * YEAR * SECOND;
        let wall = clock(60 * YEAR);
        let store = StoreClock::new(Arc::<ManualClock>::clone(&wall), last, false);
        assert_eq!(store.stamp(), Err(UnknownTime { days: 3650 }));
        assert_eq!(store.now(), last, "nothing expires");
        advance(&wall, -(10 * YEAR as i64) + 86_400, 1);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 86_400) * SECOND), "the clock was corrected");
        for (wall, last, is_confirmed) in
            [(60 * YEAR, last, true), (60 * YEAR, 0, false), (52 * YEAR, last, false)]
        {
            let store = StoreClock::new(clock(wall), last, is_confirmed);
            assert_eq!(store.stamp(), Ok(wall * SECOND));
        }
    }
}
