//! [`cut`]: the beginning of a text that a client has chosen.

use std::borrow::Cow;

/// What stands at the end of a text of which more was left out.
const MORE: &str = "…";

/// A text of so many bytes at most; what is longer is cut, with `…` at its end.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let most = most.saturating_sub(MORE.len());
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    [&text[..end], MORE].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_is_cut_between_its_letters() {
        let cases = [("", 0, ""), ("abc", 3, "abc"), ("abcd", 3, "…"), ("abcde", 4, "a…")];
        for (text, most, wanted) in cases {
            assert_eq!(cut(text, most), wanted);
        }
        assert_eq!(cut(&"é".repeat(9), 8), "éé…");
    }
}
