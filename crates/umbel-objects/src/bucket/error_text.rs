//! Messages of errors of the object store library.

use std::error::Error;

/// Maximum length of a text of the store in a message.
const STORE_TEXT_BYTES_MAX: usize = 300;

/// Returns the messages of an error and of its causes.
pub(super) fn causes(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = error.source();
    }
    text
}

/// Returns the text between the first tags with this name.
pub(super) fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (found, _) = rest.split_once(&format!("</{name}>"))?;
    Some(found.trim()).filter(|found| !found.is_empty())
}

/// Returns the first line of a store's text, at most [`STORE_TEXT_BYTES_MAX`] of it.
pub(super) fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim_end_matches('.');
    match line.char_indices().find(|(at, _)| *at >= STORE_TEXT_BYTES_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_store_are_found_and_bounded() {
        let text = "error: <Error><Code>AccessDenied</Code><Message>m.\nn</Message></Error>";
        assert_eq!(element(text, "Code"), Some("AccessDenied"));
        assert_eq!(element(text, "Message").map(shortened).as_deref(), Some("m"));
        assert_eq!((element(text, "Region"), element("<Code>x", "Code")), (None, None));
        assert_eq!(shortened(&"ä".repeat(400)).len(), 300 + 3);
    }
}
