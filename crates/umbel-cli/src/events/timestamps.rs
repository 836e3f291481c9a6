//! Times and ages as text.

use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDateTime};

const TICKS_PER_SECOND: u64 = 10_000_000;
const NANOSECONDS_PER_TICK: u32 = 100;
/// Length of a time with seconds as text, without the `Z`.
const SECOND_LEN: usize = "1970-01-01T00:00:00".len();

/// Returns the time in RFC 3339 from microseconds since 1970.
pub fn rfc3339_of_micros(micros: u64) -> String {
    rfc3339(micros.saturating_mul(10))
}

/// A time in units of 100 ns since 1970, as RFC 3339 writes it in UTC.
pub fn rfc3339(ticks: u64) -> String {
    let (seconds, fraction) = (ticks / TICKS_PER_SECOND, ticks % TICKS_PER_SECOND);
    // Every u64 of ticks is a time: the last one is in the year 60,425.
    let time = DateTime::from_timestamp_secs(seconds as i64).unwrap_or_default();
    format!("{:04}-{}.{fraction:07}Z", time.year(), time.format("%m-%dT%H:%M:%S"))
}

/// Parses a time in the format of [`rfc3339`], with up to seven digits after the second. `None` if
/// the text is no time in UTC since 1970.
pub fn parse(text: &str) -> Option<u64> {
    let time = text.strip_suffix('Z')?;
    let format =
        if time.len() == SECOND_LEN { "%Y-%m-%dT%H:%M:%S" } else { "%Y-%m-%dT%H:%M:%S%.f" };
    let parsed = NaiveDateTime::parse_from_str(time, format).ok()?.and_utc();
    let seconds = u64::try_from(parsed.timestamp()).ok()?;
    let fraction = parsed.timestamp_subsec_nanos() / NANOSECONDS_PER_TICK;
    let ticks = seconds.checked_mul(TICKS_PER_SECOND)?.checked_add(u64::from(fraction))?;
    // chrono also accepts signs, spaces, missing zeros and leap seconds; none of them is written.
    let is_whole = matches!(time.len().checked_sub(SECOND_LEN)?, 0 | 2..=8);
    (is_whole && rfc3339(ticks).starts_with(time)).then_some(ticks)
}

/// Parses a time of RFC 3339, with any offset, into units of 100 ns since 1970.
pub fn parse_time(text: &str) -> Result<u64, String> {
    let with_offset = || {
        let time = DateTime::parse_from_rfc3339(text).ok()?;
        let seconds = u64::try_from(time.timestamp()).ok()?;
        // A leap second is at the end of the second before it.
        let fraction = time.timestamp_subsec_nanos().min(999_999_999) / NANOSECONDS_PER_TICK;
        seconds.checked_mul(TICKS_PER_SECOND)?.checked_add(u64::from(fraction))
    };
    with_offset().ok_or_else(|| {
        format!(
            "{text:?} is no time since 1970 with date, time and offset; write for example \
             2026-11-29T08:30:00Z or 2026-11-29T10:30:00+02:00"
        )
    })
}

/// Parses an age: a whole number with the unit `s`, `m`, `h` or `d`.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no age; write for example 36h or 30d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit() {
        let seconds = |text| parse_age(text).map(|age| age.as_secs());
        assert_eq!(seconds("30d"), Ok(30 * 86_400));
        assert_eq!((seconds("36h"), seconds("5m"), seconds("0s")), (Ok(129_600), Ok(300), Ok(0)));
        for wrong in ["", "30", "d", "-1d", "1.5h", "+1d", " 1d", "1w", "1é", "213503982334602d"] {
            assert!(parse_age(wrong).is_err_and(|text| text.contains("30d")), "{wrong}");
        }
    }

    #[test]
    fn timestamps_round_trip() {
        for day in (0..2_900_000).step_by(13) {
            let ticks = day * 86_400 * TICKS_PER_SECOND + (day * 7_919_777_711) % 863_999_999_999;
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
            "2026-11-23T08:00:60Z",
            "2026-11-23T08:00:60.5Z",
            "+2026-11-23T08:00:00Z",
            "2026-11-23T08:00: 7Z",
            " 2026-11-23T08:00:0Z",
            "2026-11-23T08:00:00z",
            "2026-1-23T08:00:00.5Z",
            "10000-11-23T08:00:00Z",
            "10000-11-23T08:00:00.5Z",
            "+10000-11-23T08:00:00Z",
            "2026-11-23T08:00:00 .5Z",
            "2026-11-23T08:00:00. 5Z",
            "2026-11-23T08:00:00.5 Z",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}Z",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_of_arguments_can_have_an_offset() {
        let expected = parse("2026-11-29T08:30:00.25Z").ok_or(String::new());
        for text in [
            "2026-11-29T08:30:00.25Z",
            "2026-11-29t08:30:00.25z",
            "2026-11-29 08:30:00.25Z",
            "2026-11-29T10:30:00.25+02:00",
            "2026-11-28T23:00:00.25-09:30",
            "2026-11-29T08:30:00.250000099Z",
        ] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
        for wrong in ["", "now", "2026-11-29", "2026-11-29T08:30:00", "1969-12-31T23:59:59Z"] {
            assert!(parse_time(wrong).is_err_and(|text| text.contains("+02:00")), "{wrong}");
        }
        assert!(parse_time("2026-11-29T08:30:00+25:00").is_err());
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
        assert_eq!(rfc3339(u64::MAX), "60425-05-28T05:36:10.9551615Z");
    }
}
