//! Names of streams and types: what is allowed, and which streams hold the metadata of others.

use crate::error::{Error, Result};
use crate::limits::{EVENT_TYPE_BYTES_MAX, STREAM_NAME_BYTES_MAX};
use crate::view_name::is_view;

/// What the name of a stream with the metadata of another begins with.
const METADATA_PREFIX: &str = "$$";
/// The type of the events of such streams.
pub const METADATA_TYPE: &str = "$metadata";
/// The type of the event that ends a tombstoned stream.
pub const TOMBSTONE_TYPE: &str = "$streamDeleted";
/// The type of events that point at others.
pub const LINK_TYPE: &str = "$>";

/// The stream that holds the metadata of `stream`.
pub fn metadata_stream(stream: &str) -> String {
    format!("{METADATA_PREFIX}{stream}")
}

/// Makes `name` that of the stream that holds the metadata of `stream`.
pub fn write_metadata_stream(stream: &str, name: &mut String) {
    name.clear();
    name.push_str(METADATA_PREFIX);
    name.push_str(stream);
}

/// The stream whose metadata `stream` holds; `None` where it holds nobody's.
pub fn subject(stream: &str) -> Option<&str> {
    stream.strip_prefix(METADATA_PREFIX)
}

/// An error where nothing can have this name, or nobody may append to it.
pub fn check_stream(stream: &str) -> Result<()> {
    // The metadata of a stream with the longest name has a name, too.
    let bytes = subject(stream).unwrap_or(stream).len();
    if bytes == 0 || bytes > STREAM_NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a stream's name has {bytes} bytes, but must have 1 to {STREAM_NAME_BYTES_MAX}"
        )));
    }
    let reserved = |why: &str| {
        let name = stream.escape_debug();
        Err(Error::invalid(format!("nobody can append to '{name}': {why}; take another name")))
    };
    if stream == "$all" {
        return reserved("it is the name for the events of all streams");
    }
    if subject(stream).is_some_and(|name| name.starts_with(METADATA_PREFIX)) {
        return reserved("metadata has no metadata");
    }
    if is_view(stream) {
        return reserved("it is a view of other streams");
    }
    Ok(())
}

/// An error where an event cannot have this type.
pub fn check_kind(kind: &str) -> Result<()> {
    if kind.is_empty() || kind.len() > EVENT_TYPE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "an event's type has {} bytes, but must have 1 to {EVENT_TYPE_BYTES_MAX}",
            kind.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_appended_to_is_told_why() {
        let long = "x".repeat(STREAM_NAME_BYTES_MAX + 1);
        let cases = [
            ("", "0 bytes"),
            ("$$", "0 bytes"),
            (&long, "1025 bytes"),
            ("$all", "all streams"),
            ("$$$$a", "has no metadata"),
            ("$streams", "a view"),
            ("$ce-cart", "a view"),
            ("$et-Opened", "a view"),
        ];
        for (name, why) in cases {
            let said = check_stream(name).expect_err("refused").to_string();
            assert!(said.contains(why), "{name}: {said}");
        }
        for name in ["a", "$settings", "$$a", "$$$settings", "käse", "a b\n", &long[1..]] {
            check_stream(name).expect("a good name");
        }
        check_stream(&metadata_stream(&long[1..])).expect("that of the longest name");
    }

    #[test]
    fn a_type_has_a_length() {
        assert!(check_kind("").is_err());
        assert!(check_kind(&"t".repeat(EVENT_TYPE_BYTES_MAX + 1)).is_err());
        check_kind("t").expect("a good type");
    }
}
