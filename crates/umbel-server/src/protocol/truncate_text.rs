//! [`truncate_text`]: shortens a text that a client has chosen.

use std::borrow::Cow;

/// Suffix of a truncated text.
const ELLIPSIS: &str = "…";

/// Truncates a text to at most `max_bytes` bytes, with `…` at its end.
pub fn truncate_text(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return text.into();
    }
    let max_bytes = max_bytes.saturating_sub(ELLIPSIS.len());
    let end = (0..=max_bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    [&text[..end], ELLIPSIS].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_truncated_at_a_character_boundary() {
        let cases = [("", 0, ""), ("abc", 3, "abc"), ("abcd", 3, "…"), ("abcde", 4, "a…")];
        for (text, max_bytes, wanted) in cases {
            assert_eq!(truncate_text(text, max_bytes), wanted);
        }
        assert_eq!(truncate_text(&"é".repeat(9), 8), "éé…");
    }
}
