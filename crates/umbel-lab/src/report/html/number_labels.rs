//! Number formats of the report: round numbers on an axis, ratios and durations.

use crate::number_format::short;

/// The digits as exponents.
const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// Formats a round number on an axis, without insignificant digits.
pub fn tick(value: f64) -> String {
    // Sums of steps are not exactly round; no tick has more than six digits.
    let value: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e9).contains(&size) {
        return with_power(&format!("{value:e}"));
    }
    let text = size.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut result = if value < 0.0 { "-".to_string() } else { String::new() };
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            result.push(',');
        }
        result.push(digit);
    }
    if !fraction.is_empty() {
        result.push('.');
        result.push_str(fraction);
    }
    result
}

/// Formats a ratio to the base. Small ratios keep their digits.
pub fn times(ratio: f64) -> String {
    format!("{}×", short(ratio))
}

/// Formats a range from the least to the greatest.
pub fn range(low: f64, high: f64) -> String {
    format!("{}–{}", short(low), short(high))
}

/// Formats a duration.
pub fn duration(seconds: f64) -> String {
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    match hours {
        0 => format!("{minutes} min {rest} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// Converts `1.5e-7` to `1.5 × 10⁻⁷`, and `1e9` to `10⁹`.
fn with_power(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let raised = |letter: char| letter.to_digit(10).map_or('⁻', |digit| RAISED[digit as usize]);
    let power: String = exponent.chars().map(raised).collect();
    match mantissa {
        "1" => format!("10{power}"),
        _ => format!("{mantissa} × 10{power}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let texts = [0.0, 0.1 + 0.2, 5000.0, 1e9, 0.00002, 2.5e12, -0.5, -1e6].map(tick);
        let round = ["0", "0.3", "5,000", "10⁹", "2 × 10⁻⁵", "2.5 × 10¹²", "-0.5", "-1,000,000"];
        assert_eq!(texts, round);
    }

    #[test]
    fn durations_have_two_units() {
        let texts = [0.0, 12.34, 59.99, 200.0, 3599.7, 7290.0].map(duration);
        assert_eq!(texts, ["0.0 s", "12.3 s", "1 min 0 s", "3 min 20 s", "1 h 0 min", "2 h 1 min"]);
    }
}
