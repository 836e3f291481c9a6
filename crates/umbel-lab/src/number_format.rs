//! Formats of numbers in texts.

/// Formats a number with three or four significant digits.
pub fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0".to_string(),
        _ if size >= 10_000.0 => grouped(value),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ if size >= 0.1 => format!("{value:.3}"),
        _ if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a whole number with thousands separators.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Formats a ratio of two figures: `1.07`, or `–` if the second is 0.
pub fn ratio(part: f64, whole: f64) -> String {
    if whole == 0.0 { "–".to_string() } else { format!("{:.2}", part / whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1_234_567.8, "1,234,568"),
            (-12_345.0, "-12,345"),
            (999.4, "999"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.1234, "0.123"),
            (0.012_34, "0.0123"),
            (0.000_123_4, "1.2e-4"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!((ratio(3.0, 2.0).as_str(), ratio(1.0, 0.0).as_str()), ("1.50", "–"));
    }
}
