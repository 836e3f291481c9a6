//! Parses numbers such as `1_000_000`, `10M` and `64MiB`, and formats numbers like `1,234,567` and
//! `1.5 MiB`. Parsing and formatting use the same units: `MB` is 10^6 bytes, `MiB` is 2^20.

/// Returns a parser of whole numbers in this range, which may have `_` between digits. The suffixes
/// `k`, `M`, `G`, `T` are powers of 1000, `Ki`, `Mi`, `Gi`, `Ti` powers of 1024; a `B` after a
/// suffix changes nothing. An error that begins with `must` is about the range; other errors are
/// about the format.
pub fn integer_parser(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = parse_saturating(text)?;
        match u64::try_from(number) {
            Ok(count) if (min..=max).contains(&count) => Ok(count),
            _ if max == u64::MAX => Err(format!("must be {min} or more, in 64 bits")),
            _ => Err(format!("must be {min} to {max}")),
        }
    }
}

/// Parses a number of any size; a number out of range saturates.
fn parse_saturating(text: &str) -> Result<i128, String> {
    let trimmed = text.trim();
    let (sign, trimmed) = match trimmed.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, trimmed),
    };
    let digits_end = trimmed
        .find(|character: char| !character.is_ascii_digit() && character != '_')
        .unwrap_or(trimmed.len());
    let (digits, suffix) = trimmed.split_at(digits_end);
    let digits: String = digits.chars().filter(|character| *character != '_').collect();
    if digits.is_empty() {
        return Err(format!("`{text}` is not a whole number (like 1000, 1_000, 10k, 64MiB)"));
    }
    let unit = unit_factor(suffix).ok_or_else(|| {
        format!(
            "`{suffix}` in `{text}` is not a suffix; valid suffixes are k M G T (1000) and Ki \
             Mi Gi Ti (1024)"
        )
    })?;
    let number: i128 = digits.parse().unwrap_or(i128::MAX);
    Ok(sign * number.saturating_mul(i128::from(unit)))
}

fn unit_factor(suffix: &str) -> Option<u64> {
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

/// Parses a number with a suffix, or a negative number: db_bench uses -1 for "not set".
pub fn parse_signed(text: &str) -> Result<i64, String> {
    let number = parse_saturating(text)?;
    i64::try_from(number).map_err(|_| format!("must be {} to {}", i64::MIN, i64::MAX))
}

/// Parses a fraction from 0 to 1.
pub fn parse_fraction(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        Ok(_) => Err("must be 0 to 1".to_string()),
        Err(_) => Err(format!("`{text}` is not a number (like 0.5)")),
    }
}

/// Parses a switch like gflags: `1`, `true`, `yes`, `on` or `0`, `false`, `no`, `off`.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" | "t" | "y" => Ok(true),
        "0" | "false" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err(format!("`{text}` is neither true (on, 1) nor false (off, 0)")),
    }
}

/// Formats `1234567` as `1,234,567`.
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

/// Formats a number with its noun, whose plural ends with `s`: `1 event`, `1,234 events`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Formats bytes in the largest binary unit that keeps a nonzero digit before the point:
/// `12.3 MiB`.
pub fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 || unit == "TiB" {
            return if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    String::new()
}

/// Formats a part of a whole in percent, with more digits for small parts: `99.1 %`, `0.83 %`.
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
    fn counts_accept_separators_and_suffixes() {
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
            assert_eq!(integer_parser(0, u64::MAX)(text), Ok(count), "{text}");
        }
        for text in ["", "k", "-", "--1", "1.5", "1x", "10 M"] {
            let error = integer_parser(0, 9)(text).unwrap_err();
            assert!(error.starts_with('`'), "{text}: {error}");
        }
    }

    #[test]
    fn out_of_range_count_is_rejected_with_range() {
        let huge = "9".repeat(50);
        for text in ["-1", "-5k", "0", "10", "18446744073709551616", "99999999999T", &huge] {
            assert_eq!(integer_parser(1, 9)(text), Err("must be 1 to 9".to_string()), "{text}");
        }
        let error = integer_parser(0, u64::MAX)("18446744073709551616").unwrap_err();
        assert_eq!(error, "must be 0 or more, in 64 bits");
        assert_eq!(integer_parser(0, u64::MAX)("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_fraction("0.25"), Ok(0.25));
        for text in ["1.5", "-1", "nan", "inf"] {
            assert_eq!(parse_fraction(text), Err("must be 0 to 1".to_string()), "{text}");
        }
        assert!(parse_fraction("half").unwrap_err().contains("`half` is not a number"));
    }

    #[test]
    fn signed_numbers_take_a_minus() {
        assert_eq!(parse_signed("-1"), Ok(-1));
        assert_eq!(parse_signed("8M"), Ok(8_000_000));
        assert!(parse_signed("--1").is_err());
        assert!(parse_signed("9223372036854775808").is_err());
    }

    #[test]
    fn switches_are_parsed_as_in_gflags() {
        assert_eq!(parse_switch("1"), Ok(true));
        assert_eq!(parse_switch("False"), Ok(false));
        assert!(parse_switch("maybe").is_err());
    }

    #[test]
    fn numbers_are_formatted_for_display() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(counted(0, "event"), "0 events");
        assert_eq!(counted(1, "hidden event"), "1 hidden event");
        assert_eq!(counted(1_234, "chunk"), "1,234 chunks");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(percent(0.00831), "0.83 %");
        assert_eq!(percent(0.991), "99.1 %");
    }
}
