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

/// Reads what [`rfc3339`] writes, with up to seven digits after the second or none; `None` where
/// it is no time in UTC since 1970.
pub fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let is_separated = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
        .iter()
        .all(|(at, separator)| bytes.get(*at) == Some(separator));
    let number = |at: usize, len: usize| -> Option<u64> {
        let digits = text.get(at..at + len)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let rest = text.get(19..)?.strip_suffix('Z')?;
    let fraction = match rest.strip_prefix('.') {
        Some(digits) if (1..=7).contains(&digits.len()) => {
            let at = text.len() - 1 - digits.len();
            number(at, digits.len())? * 10u64.pow(7 - digits.len() as u32)
        }
        None if rest.is_empty() => 0,
        _ => return None,
    };
    let is_in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !is_separated || !is_in_range {
        return None;
    }
    let days = days_until(year, month, day);
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    // The thirty-first of a month with thirty days is no day.
    (date(days) == (year, month, day)).then_some(seconds * TICKS_PER_SECOND + fraction)
}

/// The number of a day since 1970: [`date`] turned round.
fn days_until(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for day in (0..2_900_000).step_by(13) {
            let ticks =
                day * SECONDS_PER_DAY * TICKS_PER_SECOND + (day * 7_919_777_711) % 863_999_999_999;
            let text = rfc3339(ticks);
            assert_eq!(parse(&text), Some(ticks), "{text}");
        }
        assert_eq!(parse("1970-01-01T00:00:01Z"), Some(TICKS_PER_SECOND));
        assert_eq!(parse("1970-01-01T00:00:00.25Z"), Some(2_500_000));
        for wrong in [
            "",
            "now",
            "2026-11-23",
            "2026-11-23T08:00:00",
            "2026-11-23T08:00:00+01:00",
            "2026-11-23T24:00:00Z",
            "2026-11-23T08:60:00Z",
            "2026-11-23T08:00:00.Z",
            "2026-11-23T08:00:00.12345678Z",
            "2026-11-23 08:00:00Z",
            "2026-02-29T08:00:00Z",
            "2026-13-01T08:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-+3T08:00:00Z",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}Z",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn timestamps_match_the_calendar() {
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
