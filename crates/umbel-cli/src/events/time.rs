//! Times as text.

const TICKS_PER_SECOND: u64 = 10_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// A time in units of 100 ns since 1970, as RFC 3339 writes it in UTC.
pub fn rfc3339(ticks: u64) -> String {
    let (seconds, fraction) = (ticks / TICKS_PER_SECOND, ticks % TICKS_PER_SECOND);
    let (year, month, day) = date(seconds / SECONDS_PER_DAY);
    let second = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
}

/// Year, month and day of the day with this number since 1970, counted in eras of 400 years that
/// begin with March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.0000000Z"),
            (951_782_399, "2000-02-28T23:59:59.0000000Z"),
            (951_782_400, "2000-02-29T00:00:00.0000000Z"),
            (951_868_800, "2000-03-01T00:00:00.0000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.0000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.0000000Z"),
        ] {
            assert_eq!(rfc3339(seconds * TICKS_PER_SECOND), text);
        }
        assert_eq!(rfc3339(12_345_678), "1970-01-01T00:00:01.2345678Z");
    }
}
