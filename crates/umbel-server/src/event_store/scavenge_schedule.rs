//! [`ScavengeSchedule`] and [`Timetable`]: the times at which scavenges start by themselves.
//!
//! Times of the schedule are UTC, so changes to summer time do not matter. A [`Timetable`] gets the
//! wall clock, which can jump:
//!
//! - After a jump ahead, or while the process was suspended, at most one time is due: the last one.
//! - A time is due for [`LATE_MAX`]. After that it is missed, because operators choose times of low
//!   load.
//! - After a jump back of at most [`REPEAT_MAX`], no time is due a second time. After a longer
//!   jump, the times before were wrong, and count no more.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Direction};

use crate::limits::{ERROR_BYTES_MAX, SCHEDULE_BYTES_MAX};
use crate::protocol::truncate_text::truncate_text;

/// Time for which a scavenge is due.
pub const LATE_MAX: Duration = Duration::from_secs(60 * 60);
/// Longest jump of the clock back after which times that were due are not due again.
pub const REPEAT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Example in errors.
const EXAMPLE: &str = "for example \"0 3 * * *\" for 03:00 UTC each day";

/// A cron expression of five fields: minute, hour, day of the month, month, day of the week.
#[derive(Clone, PartialEq)]
pub struct ScavengeSchedule {
    text: String,
    cron: Cron,
}

impl FromStr for ScavengeSchedule {
    type Err = String;

    /// Parses an expression. The error says what to change.
    fn from_str(text: &str) -> Result<ScavengeSchedule, String> {
        let text = text.trim();
        let shown = printable(&truncate_text(text, ERROR_BYTES_MAX));
        if text.len() > SCHEDULE_BYTES_MAX {
            let bytes = text.len();
            return Err(format!(
                "schedule has {bytes} bytes, but must have at most {SCHEDULE_BYTES_MAX}"
            ));
        }
        if text.split_whitespace().count() != 5 {
            return Err(format!(
                "schedule is \"{shown}\", but must have five fields: minute, hour, day of the \
                 month, month and day of the week; {EXAMPLE}"
            ));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed);
        let cron = parser.build().parse(text).map_err(|error| {
            let error = error.to_string();
            let why = printable(error.trim_end_matches('.'));
            format!("schedule is \"{shown}\", which is no cron expression ({why}); write {EXAMPLE}")
        })?;
        let schedule = ScavengeSchedule { text: text.to_string(), cron };
        match schedule.next_after(0) {
            Some(_) => Ok(schedule),
            None => Err(format!(
                "schedule is \"{shown}\", a date that no year has; choose a day that the month has"
            )),
        }
    }
}

/// The text with its control characters replaced, because operators see it in terminals.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

impl fmt::Debug for ScavengeSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for ScavengeSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ScavengeSchedule {
    /// The first time after this one, in microseconds since 1970.
    pub fn next_after(&self, micros: u64) -> Option<u64> {
        self.find(micros, Direction::Forward, false)
    }

    /// The last time up to this one, in microseconds since 1970.
    fn last_until(&self, micros: u64) -> Option<u64> {
        self.find(micros, Direction::Backward, true)
    }

    fn find(&self, micros: u64, direction: Direction, is_inclusive: bool) -> Option<u64> {
        let from: DateTime<Utc> = DateTime::from_timestamp_micros(i64::try_from(micros).ok()?)?;
        let found = match direction {
            Direction::Forward => self.cron.find_next_occurrence(&from, is_inclusive),
            Direction::Backward => self.cron.find_previous_occurrence(&from, is_inclusive),
        };
        u64::try_from(found.ok()?.timestamp_micros()).ok()
    }
}

/// A time that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueTime {
    /// A scavenge starts now.
    Now(u64),
    /// The time was longer than [`LATE_MAX`] ago.
    Missed(u64),
}

/// The next time of a schedule, and the last one that has come.
#[derive(Debug, Clone)]
pub struct Timetable {
    schedule: ScavengeSchedule,
    /// The next time; `None` if there is none before the year 5000.
    next: Option<u64>,
    last: Option<u64>,
    /// Last value of the clock.
    clock_last: u64,
}

impl Timetable {
    /// Creates the timetable of a schedule that was set, or for which a scavenge last started, at
    /// `since`.
    pub fn new(schedule: ScavengeSchedule, since: u64, now: u64) -> Timetable {
        let last = Some(since);
        let mut timetable = Timetable { schedule, next: None, last, clock_last: now };
        timetable.find_next(now, since.min(now));
        timetable
    }

    /// The next time, in microseconds since 1970.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// Whether a time has come.
    pub fn is_due(&mut self, now: u64) -> bool {
        if now < self.clock_last {
            self.find_next(now, now);
        }
        self.clock_last = now;
        self.next.is_some_and(|next| now >= next)
    }

    /// Returns a time that has come, once.
    pub fn take_due(&mut self, now: u64) -> Option<DueTime> {
        if !self.is_due(now) {
            return None;
        }
        let due = self.schedule.last_until(now)?;
        self.last = Some(due);
        self.next = self.schedule.next_after(now);
        let late = Duration::from_micros(now.saturating_sub(due));
        Some(if late <= LATE_MAX { DueTime::Now(due) } else { DueTime::Missed(due) })
    }

    /// Finds the next time after `from`, and after the last one unless that is far ahead.
    fn find_next(&mut self, now: u64, from: u64) {
        let is_near = |last: &u64| Duration::from_micros(last.saturating_sub(now)) <= REPEAT_MAX;
        let last = self.last.filter(is_near).unwrap_or(0);
        self.next = self.schedule.next_after(from.max(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    /// Midnight on 2026-11-29, a Sunday.
    const SUNDAY: u64 = 20_786 * DAY;

    fn daily(since: u64, now: u64) -> Timetable {
        Timetable::new("0 3 * * *".parse().unwrap(), since, now)
    }

    #[test]
    fn each_time_is_due_once() {
        let mut times = daily(SUNDAY, SUNDAY);
        assert_eq!(times.next(), Some(SUNDAY + 3 * HOUR));
        assert_eq!(times.take_due(SUNDAY + 3 * HOUR - 1), None);
        let due = Some(DueTime::Now(SUNDAY + 3 * HOUR));
        assert_eq!(times.take_due(SUNDAY + 3 * HOUR), due);
        assert_eq!(times.take_due(SUNDAY + 3 * HOUR + 1), None);
        assert_eq!(times.next(), Some(SUNDAY + DAY + 3 * HOUR));
    }

    #[test]
    fn time_long_ago_is_missed_and_a_late_one_is_due() {
        for (now, wanted) in [
            (SUNDAY + 4 * HOUR, DueTime::Now(SUNDAY + 3 * HOUR)),
            (SUNDAY + 4 * HOUR + 1, DueTime::Missed(SUNDAY + 3 * HOUR)),
            // Only the last of several times counts.
            (SUNDAY + 9 * DAY + 9 * HOUR, DueTime::Missed(SUNDAY + 9 * DAY + 3 * HOUR)),
            (SUNDAY + 9 * DAY + 3 * HOUR, DueTime::Now(SUNDAY + 9 * DAY + 3 * HOUR)),
        ] {
            // In one run of the server, and after its start.
            for mut times in [daily(SUNDAY, SUNDAY), daily(SUNDAY, now)] {
                assert_eq!(times.take_due(now), Some(wanted));
                assert_eq!(times.take_due(now), None);
                let next = times.next().unwrap();
                assert!(next > now && next <= now + DAY, "{next}");
            }
        }
        // The time has its record already.
        let mut times = daily(SUNDAY + 3 * HOUR, SUNDAY + 3 * HOUR + MINUTE);
        assert_eq!(times.take_due(SUNDAY + 3 * HOUR + 2 * MINUTE), None);
    }

    #[test]
    fn jumps_of_the_clock_neither_repeat_nor_lose_times() {
        let mut times = daily(SUNDAY, SUNDAY);
        let three = SUNDAY + 3 * HOUR;
        assert_eq!(times.take_due(three), Some(DueTime::Now(three)));
        // Back by an hour, and past the same time again.
        assert_eq!(times.take_due(three - HOUR), None);
        assert_eq!(times.take_due(three), None);
        assert_eq!(times.next(), Some(three + DAY));
        // A year ahead: one time is due, or missed.
        let far = three + 365 * DAY;
        assert_eq!(times.take_due(far), Some(DueTime::Now(far)));
        // Back again: the schedule does not wait for a year.
        assert_eq!(times.take_due(three + HOUR), None);
        assert_eq!(times.next(), Some(three + DAY));
        assert_eq!(times.take_due(three + DAY), Some(DueTime::Now(three + DAY)));
        // A server that starts while the clock is a year behind does not wait, either.
        assert_eq!(daily(far, three).next(), Some(three + DAY));
        // A clock beyond all calendars has no times.
        assert_eq!(times.take_due(u64::MAX), None);
    }

    #[test]
    fn wrong_expressions_are_refused_with_a_remedy() {
        for (text, wanted) in [
            ("", "five fields"),
            ("0 3 * *", "five fields"),
            ("0 0 3 * * *", "five fields"),
            ("@daily", "five fields"),
            ("61 3 * * *", "no cron expression"),
            ("0 3 * * DAY", "no cron expression"),
            ("\u{1b}[2J 3 * * *", "no cron expression"),
            ("0 0 30 2 *", "choose a day"),
            ("0 0 31 2,4,6,9,11 *", "choose a day"),
            (&format!("{} 3 * * *", "0,".repeat(100)), "at most 200"),
        ] {
            let error = text.parse::<ScavengeSchedule>().unwrap_err();
            assert!(error.starts_with("schedule ") && error.contains(wanted), "{text}: {error}");
            assert!(!error.contains('\u{1b}') && error.len() < 1000, "{error:?}");
        }
        let leap: ScavengeSchedule = " 30 4 29 2 * ".parse().unwrap();
        assert_eq!(leap.to_string(), "30 4 29 2 *");
        let wanted = DateTime::parse_from_rfc3339("2028-02-29T04:30:00Z").unwrap();
        assert_eq!(leap.next_after(SUNDAY), u64::try_from(wanted.timestamp_micros()).ok());
    }
}
