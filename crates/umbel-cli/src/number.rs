//! Numbers as people write them: `1_000_000`, `10M`, `64MiB` are read; `1,234,567` and `1.5 MB`
//! are written.

/// Reads a whole number that may have `_` between digits and a suffix: `k`, `M`, `G`, `T` are
/// powers of 1000, `Ki`, `Mi`, `Gi`, `Ti` powers of 1024; a `B` behind them changes nothing.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits_end = trimmed
        .find(|character: char| !character.is_ascii_digit() && character != '_')
        .unwrap_or(trimmed.len());
    let (digits, suffix) = trimmed.split_at(digits_end);
    let digits: String = digits.chars().filter(|character| *character != '_').collect();
    if digits.is_empty() {
        return Err(format!("`{text}` is not a whole number (like 1000, 1_000, 10k, 64MiB)"));
    }
    let too_large = || format!("`{text}` is larger than a number may be here");
    let number: u64 = digits.parse().map_err(|_| too_large())?;
    let unit = unit_of(suffix).ok_or_else(|| {
        format!("`{suffix}` in `{text}` is no suffix; these are: k M G T (1000) Ki Mi Gi Ti (1024)")
    })?;
    number.checked_mul(unit).ok_or_else(too_large)
}

fn unit_of(suffix: &str) -> Option<u64> {
    let lower = suffix.to_ascii_lowercase();
    let lower = lower.strip_suffix('b').unwrap_or(&lower);
    Some(match lower {
        "" => 1,
        "k" => 1000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        "ti" => 1 << 40,
        _ => return None,
    })
}

/// As [`parse_count`], and a minus in front is allowed: db_bench uses -1 for "not set".
pub fn parse_signed(text: &str) -> Result<i64, String> {
    let trimmed = text.trim();
    let (sign, rest) = match trimmed.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, trimmed),
    };
    let count = parse_count(rest)?;
    let count = i64::try_from(count).map_err(|_| format!("`{text}` is too large"))?;
    Ok(sign * count)
}

/// Reads a switch as gflags does: `1 true yes on` and `0 false no off`.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" | "t" | "y" => Ok(true),
        "0" | "false" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err(format!("`{text}` is neither 1 (on) nor 0 (off)")),
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the largest unit that keeps a digit before the point: `12.3 MB` (1 MB = 1024 KB).
pub fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if value < 1024.0 || unit == "TB" {
            return if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    String::new()
}

/// A part of a whole in percent with as many digits as small parts need: `99.1 %`, `0.83 %`.
pub fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent != 0.0 && percent.abs() < 10.0 {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_people_write_them() {
        let cases = [
            ("0", 0),
            ("1_000_000", 1_000_000),
            ("10M", 10_000_000),
            ("1k", 1000),
            ("1K", 1000),
            ("64MiB", 64 << 20),
            ("64Mi", 64 << 20),
            ("3GB", 3_000_000_000),
            ("2Ti", 2 << 40),
            (" 7 ", 7),
        ];
        for (text, count) in cases {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for text in ["", "k", "-1", "1.5", "1x", "10 M", "18446744073709551616", "99999999999T"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn signed_numbers_take_a_minus() {
        assert_eq!(parse_signed("-1"), Ok(-1));
        assert_eq!(parse_signed("8M"), Ok(8_000_000));
        assert!(parse_signed("--1").is_err());
        assert!(parse_signed("9223372036854775808").is_err());
    }

    #[test]
    fn switches_are_read_as_gflags_does() {
        assert_eq!(parse_switch("1"), Ok(true));
        assert_eq!(parse_switch("False"), Ok(false));
        assert!(parse_switch("maybe").is_err());
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KB");
        assert_eq!(bytes(3 << 40), "3.0 TB");
        assert_eq!(percent(0.00831), "0.83 %");
        assert_eq!(percent(0.991), "99.1 %");
    }
}
