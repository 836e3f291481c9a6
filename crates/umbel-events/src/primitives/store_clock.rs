//! [`StoreClock`]: the wall clock as far as the store believes it.
//!
//! INVARIANT: the clock advances by at most [`CLOCK_JUMP_SECONDS_MAX`] more than the monotonic
//! clock, compared with the furthest time so far. Times of events never decrease, so one reading
//! years ahead would stamp every later event. A wall clock that was set back and then corrected is
//! believed.
//!
//! INVARIANT: at an open, the wall clock is compared with the monotonic clock if the machine was
//! not started since the last manifest was written, otherwise with the last known time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::Clock;

use crate::limits::{CLOCK_GAP_SECONDS_MAX, CLOCK_JUMP_SECONDS_MAX};

/// Ticks of 100 ns in a microsecond.
pub const TICKS_PER_MICRO: u64 = 10;
const MICROS_PER_SECOND: u64 = 1_000_000;
/// Ticks of 100 ns in a second.
pub const TICKS_PER_SECOND: u64 = TICKS_PER_MICRO * MICROS_PER_SECOND;

/// Time that a store believed, as its chunk manifest records it.
///
/// With it, the next open knows the time that passed, if the machine was not started meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockMark {
    /// The believed wall clock, in ticks since 1970.
    pub time: u64,
    /// The monotonic clock with suspends at the same moment, in ticks.
    pub uptime: u64,
    /// Id of the machine's start to which `uptime` belongs; all zeros if unknown.
    pub boot: [u8; 16],
}

/// Knowledge of a store about the time when it is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClockEvidence {
    /// Time of the last event, in ticks; 0 without events.
    pub last_created: u64,
    /// The time that the store believed last.
    pub mark: Option<ClockMark>,
}

/// A wall clock whose jumps ahead are rejected.
#[derive(Debug)]
pub struct StoreClock {
    clock: Arc<dyn Clock>,
    boot: [u8; 16],
    /// The most microseconds from the monotonic clock to the believed wall clock.
    offset: AtomicI64,
    /// Microseconds by which the wall clock is ahead of the believed one, if it is rejected.
    rejected: AtomicU64,
    /// Whether the wall clock was rejected at the open, where nothing else says the time.
    is_unknown: AtomicBool,
    /// Time of the newest event, in ticks.
    last_created: AtomicU64,
}

/// The wall clock was rejected at the open: it is this far ahead of the time believed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTime {
    /// Days from the time believed last to the wall clock.
    pub days: u64,
}

/// State of the wall clock for an open store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockState {
    /// The time by which the wall clock is ahead of the time that the store believes; zero unless a
    /// jump of the clock is rejected.
    pub rejected: Duration,
    /// Whether the store refuses appends, since it knows no time.
    pub refuses_appends: bool,
    /// The time by which the last event is ahead of the wall clock; zero up to five minutes.
    pub behind: Duration,
}

/// Verdict of the evidence on the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WallVerdict {
    /// Nothing contradicts the wall clock. The furthest time so far, in microseconds, is this.
    Believed(u64),
    /// The machine was not started again, so the time is known, in microseconds.
    Continued(u64),
    /// The time is unknown, but not before this one, in microseconds.
    Unknown(u64),
}

impl ClockEvidence {
    /// Compares the wall clock with the evidence.
    fn judge(&self, (wall, monotonic): (u64, u64), boot: [u8; 16]) -> WallVerdict {
        let is_same_boot = |mark: &ClockMark| {
            mark.boot == boot && boot != [0; 16] && mark.ticks_until(monotonic).is_some()
        };
        if let Some(mark) = self.mark.filter(is_same_boot) {
            let passed = mark.ticks_until(monotonic).unwrap_or_default();
            let continued = mark.time.saturating_add(passed) / TICKS_PER_MICRO;
            let is_jump =
                wall.saturating_sub(continued) > CLOCK_JUMP_SECONDS_MAX * MICROS_PER_SECOND;
            return match is_jump {
                true => WallVerdict::Continued(continued),
                false => WallVerdict::Believed(wall.max(continued)),
            };
        }
        let last = self.last_time() / TICKS_PER_MICRO;
        let gap = wall.saturating_sub(last);
        match last > 0 && gap > CLOCK_GAP_SECONDS_MAX * MICROS_PER_SECOND {
            true => WallVerdict::Unknown(last),
            false => WallVerdict::Believed(wall),
        }
    }

    /// The last time that this store's clock is known to have had, in ticks. Imported events may be
    /// older.
    fn last_time(&self) -> u64 {
        self.last_created.max(self.mark.map_or(0, |mark| mark.time))
    }

    /// Whether the wall clock needs a confirmation by the operator: it is ahead of the evidence, or
    /// behind it.
    pub fn needs_confirmation(&self, clock: &dyn Clock) -> bool {
        let times = read(clock);
        let is_ahead = !matches!(self.judge(times, boot_id(clock)), WallVerdict::Believed(_));
        let behind = (self.last_time() / TICKS_PER_MICRO).saturating_sub(times.0);
        is_ahead || behind > CLOCK_JUMP_SECONDS_MAX * MICROS_PER_SECOND
    }
}

impl ClockMark {
    /// Returns the mark of the wall clock as it is.
    pub fn of_wall(clock: &dyn Clock) -> ClockMark {
        let (wall, monotonic) = read(clock);
        let (time, uptime) = (ticks(wall), ticks(monotonic));
        ClockMark { time, uptime, boot: boot_id(clock) }
    }

    /// Ticks from the mark to a time of the monotonic clock in microseconds.
    fn ticks_until(&self, monotonic: u64) -> Option<u64> {
        ticks(monotonic).checked_sub(self.uptime)
    }
}

impl StoreClock {
    /// Creates the clock of a store that knows this about the time. `is_confirmed` says that the
    /// operator confirmed the wall clock.
    pub fn new(clock: Arc<dyn Clock>, known: ClockEvidence, is_confirmed: bool) -> StoreClock {
        let (boot, (wall, monotonic)) = (boot_id(&*clock), read(&*clock));
        let verdict = match is_confirmed {
            true => WallVerdict::Believed(wall),
            false => known.judge((wall, monotonic), boot),
        };
        let (believed, rejected) = match verdict {
            WallVerdict::Believed(time) => (time, 0),
            WallVerdict::Continued(time) | WallVerdict::Unknown(time) => (time, wall - time),
        };
        StoreClock {
            clock,
            boot,
            offset: AtomicI64::new(difference(believed, monotonic)),
            rejected: AtomicU64::new(rejected),
            is_unknown: AtomicBool::new(matches!(verdict, WallVerdict::Unknown(_))),
            last_created: AtomicU64::new(known.last_created),
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
        ticks(time)
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
        let ahead = Duration::from_micros(self.rejected.load(Ordering::Relaxed));
        Err(UnknownTime { days: ahead.as_secs() / (24 * 60 * 60) })
    }

    /// The wall clock in ticks, believed or not.
    pub fn wall(&self) -> u64 {
        ticks(self.clock.wall_micros())
    }

    /// Records the time of an event that was appended.
    pub fn note_created(&self, created: u64) {
        self.last_created.store(created, Ordering::Relaxed);
    }

    /// Returns a record of the believed time for the next open; `None` where the time is unknown.
    pub fn mark(&self) -> Option<ClockMark> {
        let now = self.now();
        let monotonic = micros(self.clock.now_with_suspends());
        if self.is_unknown.load(Ordering::Relaxed) {
            return None;
        }
        // The furthest time so far: a wall clock that was set back and then corrected is believed.
        let believed = monotonic.saturating_add_signed(self.offset.load(Ordering::Relaxed));
        let time = now.max(ticks(believed));
        Some(ClockMark { time, uptime: ticks(monotonic), boot: self.boot })
    }

    fn behind(&self) -> Duration {
        let last = self.last_created.load(Ordering::Relaxed) / TICKS_PER_MICRO;
        let behind = Duration::from_micros(last.saturating_sub(self.clock.wall_micros()));
        if behind.as_secs() > CLOCK_JUMP_SECONDS_MAX { behind } else { Duration::ZERO }
    }

    /// State of the wall clock for the store at present.
    pub fn state(&self) -> ClockState {
        self.now();
        ClockState {
            rejected: Duration::from_micros(self.rejected.load(Ordering::Relaxed)),
            refuses_appends: self.is_unknown.load(Ordering::Relaxed),
            behind: self.behind(),
        }
    }
}

/// The wall clock and the monotonic clock in microseconds.
fn read(clock: &dyn Clock) -> (u64, u64) {
    let wall = clock.wall_micros();
    (wall, micros(clock.now_with_suspends()))
}

fn boot_id(clock: &dyn Clock) -> [u8; 16] {
    clock.boot_id().unwrap_or_default()
}

fn ticks(micros: u64) -> u64 {
    micros.saturating_mul(TICKS_PER_MICRO)
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

        fn boot_id(&self) -> Option<[u8; 16]> {
            Some([3; 16])
        }
    }

    fn after(last_created: u64) -> ClockEvidence {
        ClockEvidence { last_created, mark: None }
    }

    /// Evidence of a store whose last event is old, with the last believed time in seconds.
    fn marked(time: u64, uptime: u64, boot: [u8; 16]) -> ClockEvidence {
        let mark = ClockMark { time: time * SECOND, uptime: uptime * SECOND, boot };
        ClockEvidence { last_created: 40 * YEAR * SECOND, mark: Some(mark) }
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
        let store =
            StoreClock::new(Arc::<ManualClock>::clone(&wall), ClockEvidence::default(), false);
        advance(&wall, 200, 0);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 200) * SECOND), "a correction of minutes");
        advance(&wall, 10 * YEAR as i64, 5);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 205) * SECOND), "the time goes on");
        assert_eq!(store.state().rejected.as_secs(), 10 * YEAR - 5);
        advance(&wall, 30, 30);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 235) * SECOND));
        advance(&wall, -(10 * YEAR as i64), 0);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 230) * SECOND), "the clock was corrected");
        assert_eq!(store.state().rejected, Duration::ZERO);
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
        let store = StoreClock::new(Arc::<ManualClock>::clone(&wall), after(last), false);
        assert_eq!(store.stamp(), Err(UnknownTime { days: 3650 }));
        assert_eq!(store.now(), last, "nothing expires");
        advance(&wall, -(10 * YEAR as i64) + 86_400, 1);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 86_400) * SECOND), "the clock was corrected");
        for (wall, last, is_confirmed) in
            [(60 * YEAR, last, true), (60 * YEAR, 0, false), (52 * YEAR, last, false)]
        {
            let store = StoreClock::new(clock(wall), after(last), is_confirmed);
            assert_eq!(store.stamp(), Ok(wall * SECOND));
        }
    }

    #[test]
    fn jump_between_two_opens_is_not_believed_unless_the_machine_was_started() {
        // The monotonic clock reads 7 seconds.
        let jumped = 50 * YEAR + 86_400;
        let store = StoreClock::new(clock(jumped), marked(50 * YEAR, 2, [3; 16]), false);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 5) * SECOND), "five seconds later");
        assert_eq!(store.state().rejected.as_secs(), 86_395);
        let mark = store.mark().expect("the time is known");
        assert_eq!((mark.time, mark.uptime), ((50 * YEAR + 5) * SECOND, 7 * SECOND));
        for known in [
            marked(50 * YEAR, 2, [4; 16]),
            marked(50 * YEAR, 8, [3; 16]),
            marked(50 * YEAR, 2, [0; 16]),
        ] {
            let store = StoreClock::new(clock(jumped), known, false);
            assert_eq!(store.stamp(), Ok(jumped * SECOND), "ordinary downtime of a day: {known:?}");
        }
        let store = StoreClock::new(clock(jumped), marked(50 * YEAR, 2, [3; 16]), true);
        assert_eq!(store.stamp(), Ok(jumped * SECOND), "the operator confirmed it");
    }

    #[test]
    fn clock_that_was_set_back_while_closed_is_believed_once_corrected() {
        let wall = clock(20 * YEAR);
        let known = marked(50 * YEAR, 2, [3; 16]);
        assert!(known.needs_confirmation(&*wall));
        let store = StoreClock::new(Arc::<ManualClock>::clone(&wall), known, false);
        assert_eq!(store.stamp(), Ok(20 * YEAR * SECOND));
        advance(&wall, 30 * YEAR as i64, 0);
        assert_eq!(store.stamp(), Ok(50 * YEAR * SECOND));
        assert_eq!(store.mark().expect("known").time, (50 * YEAR + 5) * SECOND);
    }

    #[test]
    fn last_believed_time_counts_more_than_old_imported_events() {
        let known = marked(50 * YEAR, 2, [4; 16]);
        let wall = clock(50 * YEAR + 86_400);
        assert!(!known.needs_confirmation(&*wall));
        let store = StoreClock::new(wall, known, false);
        assert_eq!(store.stamp(), Ok((50 * YEAR + 86_400) * SECOND));
        let wall = clock(54 * YEAR);
        assert!(known.needs_confirmation(&*wall));
        let store = StoreClock::new(wall, known, false);
        assert_eq!(store.stamp(), Err(UnknownTime { days: 4 * 365 }));
        assert_eq!(store.mark(), None);
        assert_eq!(store.state().behind, Duration::ZERO);
    }

    #[test]
    fn last_event_in_the_future_is_reported() {
        let store = StoreClock::new(clock(50 * YEAR), after((50 * YEAR + 300) * SECOND), false);
        assert_eq!(store.state().behind, Duration::ZERO);
        store.note_created((50 * YEAR + 301) * SECOND);
        assert_eq!(store.state().behind.as_secs(), 301);
        assert!(!after(50 * YEAR * SECOND).needs_confirmation(&*clock(50 * YEAR)));
        assert!(after(60 * YEAR * SECOND).needs_confirmation(&*clock(50 * YEAR)));
    }
}
