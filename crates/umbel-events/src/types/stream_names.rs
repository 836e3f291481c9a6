//! Names of streams and types: which names are valid, and which streams hold the metadata of other
//! streams.

use crate::limits::{EVENT_TYPE_BYTES_MAX, STREAM_NAME_BYTES_MAX};
use crate::types::error::{Error, Result};
use crate::types::view_kind::{is_index_name, is_view};

/// Prefix of the name of a stream that holds another stream's metadata.
const METADATA_PREFIX: &str = "$$";
/// Type of the events of metadata streams.
pub const METADATA_TYPE: &str = "$metadata";
/// Type of the event that ends a tombstoned stream.
pub const TOMBSTONE_TYPE: &str = "$streamDeleted";
/// Type of links, which are events that point at other events.
pub const LINK_TYPE: &str = "$>";

/// Name that sorts after the names of all system streams, apart from those with U+10FFFF after `$`.
pub const SYSTEM_STREAMS_END: &str = "$\u{10ffff}";

/// The stream whose last event holds the general ACLs of all streams.
pub const SETTINGS_STREAM: &str = "$settings";

/// Returns the name after which a list without system streams continues that has examined the names
/// up to this one. Each stream with metadata has a system stream, so the list skips them at once.
///
/// ```
/// use umbel_events::{SYSTEM_STREAMS_END, skip_system_streams};
///
/// assert_eq!(skip_system_streams("$$cart-1".to_string()), SYSTEM_STREAMS_END);
/// assert_eq!(skip_system_streams("cart-1".to_string()), "cart-1");
/// ```
pub fn skip_system_streams(examined: String) -> String {
    match examined.starts_with('$') && &*examined < SYSTEM_STREAMS_END {
        true => SYSTEM_STREAMS_END.to_string(),
        false => examined,
    }
}

/// Returns the stream that holds the metadata of `stream`.
pub fn metadata_stream(stream: &str) -> String {
    format!("{METADATA_PREFIX}{stream}")
}

/// Sets `name` to the name of the stream that holds the metadata of `stream`.
pub fn write_metadata_stream(stream: &str, name: &mut String) {
    name.clear();
    name.push_str(METADATA_PREFIX);
    name.push_str(stream);
}

/// Returns the stream whose metadata `stream` holds; `None` if `stream` is no metadata stream.
pub fn metadata_subject(stream: &str) -> Option<&str> {
    stream.strip_prefix(METADATA_PREFIX)
}

/// Returns an error if the name is no valid stream name, or if no append to this stream is allowed.
pub fn check_stream(stream: &str) -> Result<()> {
    check_length(stream)?;
    reserved_name(stream).map_or(Ok(()), |why| {
        let name = stream.escape_debug();
        Err(Error::invalid(format!("'{name}' accepts no appends: {why}; use another name")))
    })
}

/// Returns an error if the name is no valid stream name, or if the stream cannot be deleted.
pub fn check_deletable(stream: &str) -> Result<()> {
    check_length(stream)?;
    let name = stream.escape_debug();
    if let Some(why) = reserved_name(stream) {
        return Err(Error::invalid(format!("'{name}' cannot be deleted: {why}; name a stream")));
    }
    if metadata_subject(stream).is_some() {
        return Err(Error::invalid(format!(
            "'{name}' is a metadata stream and cannot be deleted without its stream; append other \
             metadata instead"
        )));
    }
    Ok(())
}

fn check_length(stream: &str) -> Result<()> {
    // The metadata stream of a stream with the longest name has a valid name, too.
    let bytes = metadata_subject(stream).unwrap_or(stream).len();
    if bytes == 0 || bytes > STREAM_NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a stream's name has {bytes} bytes, but must have 1 to {STREAM_NAME_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// Returns why no stream has this name; `None` if a stream may have it.
fn reserved_name(stream: &str) -> Option<&'static str> {
    if stream == "$all" {
        return Some("it is the name of the events of all streams");
    }
    if metadata_subject(stream).is_some_and(|name| name.starts_with(METADATA_PREFIX)) {
        return Some("a metadata stream has no metadata of its own");
    }
    if is_view(stream) {
        return Some("it is a view of other streams");
    }
    if is_index_name(metadata_subject(stream).unwrap_or(stream)) {
        return Some("names that begin with $idx- are those of indexes");
    }
    None
}

/// Returns an error if an event cannot have this type.
pub fn check_event_type(kind: &str) -> Result<()> {
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
    fn reserved_stream_name_error_names_the_cause() {
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
            ("$idx-ce-cart", "of indexes"),
            ("$idx-own", "of indexes"),
            ("$$$idx-et-Opened", "of indexes"),
        ];
        for (name, why) in cases {
            let message = check_stream(name).expect_err("refused").to_string();
            assert!(message.contains(why), "{name}: {message}");
            // Story: the error of a deletion said that the name accepts no appends.
            let message = check_deletable(name).expect_err("refused").to_string();
            assert!(message.contains(why) && !message.contains("appends"), "{name}: {message}");
        }
        for name in ["a", "$settings", "$$a", "$$$settings", "käse", "a b\n", &long[1..]] {
            check_stream(name).expect("a good name");
            assert_eq!(check_deletable(name).is_ok(), !name.starts_with("$$"), "{name}");
        }
        check_stream(&metadata_stream(&long[1..])).expect("that of the longest name");
    }

    #[test]
    fn overlong_event_type_is_rejected() {
        assert!(check_event_type("").is_err());
        assert!(check_event_type(&"t".repeat(EVENT_TYPE_BYTES_MAX + 1)).is_err());
        check_event_type("t").expect("a good type");
    }
}
