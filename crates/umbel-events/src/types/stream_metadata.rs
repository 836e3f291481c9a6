//! [`RetentionRules`]: the part of a stream's metadata that hides events.

use crate::limits::{ACL_BYTES_MAX, METADATA_BYTES_MAX};
use crate::primitives::json_keys::{JsonKeysError, read_json_keys, with_number};
use crate::types::error::{Error, Result};

/// Maximum number of characters of an invalid value in a message.
const SHOWN_CHARS_MAX: usize = 100;

/// `$tb` of a deleted stream, which hides every event.
pub const DELETED_TRUNCATE_BEFORE: u64 = i64::MAX as u64;

const TRUNCATE_BEFORE: &str = "$tb";
const MAX_COUNT: &str = "$maxCount";

/// Strings that may stand for an ACL in a stream's metadata: they name the default ACLs.
const DEFAULT_ACL_NAMES: [&str; 2] = ["$userStreamAcl", "$systemStreamAcl"];
/// Longer text than that of each such name, every character escaped.
const DEFAULT_ACL_BYTES_MAX: usize = 128;

/// Rules in a stream's metadata that decide which of its events can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionRules {
    /// Events with lower revisions are hidden (`$tb`).
    pub truncate_before: u64,
    /// Number of the newest events that stay readable (`$maxCount`).
    pub max_count: Option<u64>,
    /// Events older than this many seconds are hidden (`$maxAge`).
    pub max_age_seconds: Option<u64>,
}

impl RetentionRules {
    /// Rules of a stream that holds the metadata of another: only the newest event is readable.
    pub const METADATA_STREAM: RetentionRules =
        RetentionRules { truncate_before: 0, max_count: Some(1), max_age_seconds: None };

    /// Whether the stream was deleted; the next append creates it again.
    pub fn is_deleted(&self) -> bool {
        self.truncate_before == DELETED_TRUNCATE_BEFORE
    }

    /// Lowest readable revision of a stream whose last is `last`; `$maxAge` is checked for each
    /// event instead.
    pub fn first_revision(&self, last: u64) -> u64 {
        let counted = self.max_count.map_or(0, |count| (last + 1).saturating_sub(count));
        counted.max(self.truncate_before)
    }

    /// Parses metadata.
    ///
    /// # Errors
    /// `Invalid` if the metadata is no JSON object, or a retention key has an invalid value.
    pub fn parse(subject: &str, data: &[u8]) -> Result<RetentionRules> {
        RetentionRules::from_keys(subject, &read_metadata(subject, data)?)
    }

    /// Parses metadata that a client appends.
    ///
    /// # Errors
    /// `Invalid` if [`parse`](RetentionRules::parse) fails, or if the metadata or its ACL is too
    /// long.
    pub fn validate(subject: &str, data: &[u8]) -> Result<RetentionRules> {
        let place = || format!("the metadata of stream '{}'", subject.escape_debug());
        check_document_bytes(data, place)?;
        let keys = read_metadata(subject, data)?;
        let rules = RetentionRules::from_keys(subject, &keys)?;
        check_acl_bytes(keys[ACL_INDEX], "$acl", place)?;
        Ok(rules)
    }

    fn from_keys(subject: &str, values: &MetadataValues<'_>) -> Result<RetentionRules> {
        let [acl, cache_control, truncate_before, max_count, max_age] = *values;
        let number = |key: &str, value: Option<&str>, min: u64| -> Result<Option<u64>> {
            let Some(value) = value else { return Ok(None) };
            // JSON text of a whole number is Rust's; a fraction or an exponent makes a float.
            let number = value.parse().ok();
            let number = number.filter(|n| (min..=DELETED_TRUNCATE_BEFORE).contains(n));
            number.map(Some).ok_or_else(|| {
                let max = DELETED_TRUNCATE_BEFORE;
                let (name, value) = (subject.escape_debug(), shorten_value(value));
                Error::invalid(format!(
                    "{key} in the metadata of stream '{name}' is {value}, but must be a whole \
                     number from {min} to {max}"
                ))
            })
        };
        if let Some(value) = acl.filter(|value| !is_acl(value)) {
            let (name, value) = (subject.escape_debug(), shorten_value(value));
            return Err(Error::invalid(format!(
                "$acl in the metadata of stream '{name}' is {value}, but must be an object or the \
                 name of a default ACL, \"$userStreamAcl\" or \"$systemStreamAcl\""
            )));
        }
        number("$cacheControl", cache_control, 1)?;
        Ok(RetentionRules {
            truncate_before: number(TRUNCATE_BEFORE, truncate_before, 0)?.unwrap_or(0),
            max_count: number(MAX_COUNT, max_count, 1)?,
            max_age_seconds: number("$maxAge", max_age, 1)?,
        })
    }
}

/// Keys of a stream's metadata that the store reads.
const METADATA_KEYS: [&str; 5] = ["$acl", "$cacheControl", TRUNCATE_BEFORE, MAX_COUNT, "$maxAge"];
/// Index of the ACL among the keys.
const ACL_INDEX: usize = 0;

/// The values of these keys, as they are written.
type MetadataValues<'a> = [Option<&'a str>; METADATA_KEYS.len()];

fn is_acl(value: &str) -> bool {
    let is_default = |name: String| DEFAULT_ACL_NAMES.contains(&&*name);
    value.starts_with('{')
        || (value.starts_with('"')
            && value.len() < DEFAULT_ACL_BYTES_MAX
            && serde_json::from_str(value).is_ok_and(is_default))
}

/// Validates data that is to be appended to the stream with the general ACLs. Other errors than an
/// ACL that is too long have an effect: only administrators have access.
///
/// # Errors
/// `Invalid` if a general ACL is too long.
pub fn validate_settings(data: &[u8]) -> Result<()> {
    let place = || "stream '$settings'".to_string();
    check_document_bytes(data, place)?;
    if data.len() <= ACL_BYTES_MAX {
        return Ok(());
    }
    let Ok(acls) = read_json_keys(data, DEFAULT_ACL_NAMES) else { return Ok(()) };
    DEFAULT_ACL_NAMES.iter().zip(acls).try_for_each(|(name, acl)| check_acl_bytes(acl, name, place))
}

/// Returns an error where a document of metadata is too long.
fn check_document_bytes(data: &[u8], place: impl Fn() -> String) -> Result<()> {
    if data.len() <= METADATA_BYTES_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{} has {} bytes, but may have at most {METADATA_BYTES_MAX}; append long content as an \
         event of a stream, and write its position into the metadata",
        place(),
        data.len()
    )))
}

/// Returns an error where the ACL under this key is too long.
fn check_acl_bytes(acl: Option<&str>, key: &str, place: impl Fn() -> String) -> Result<()> {
    let Some(acl) = acl.filter(|acl| acl.len() > ACL_BYTES_MAX) else { return Ok(()) };
    let bytes = bytes_without_blanks(acl);
    if bytes <= ACL_BYTES_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{key} in {} has {bytes} bytes, but may have at most {ACL_BYTES_MAX}; name \
         groups instead of users",
        place()
    )))
}

/// Bytes of JSON without the blanks outside of its strings.
fn bytes_without_blanks(json: &str) -> usize {
    let (mut is_string, mut is_escaped) = (false, false);
    let counts = |byte: &&u8| {
        let is_blank = !is_string && byte.is_ascii_whitespace();
        if **byte == b'"' && !is_escaped {
            is_string = !is_string;
        }
        is_escaped = is_string && **byte == b'\\' && !is_escaped;
        !is_blank
    };
    json.as_bytes().iter().filter(counts).count()
}

/// Shortens an invalid value, which may have megabytes.
fn shorten_value(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

fn read_metadata<'a>(subject: &str, data: &'a [u8]) -> Result<MetadataValues<'a>> {
    read_json_keys(data, METADATA_KEYS).map_err(|error| {
        let name = subject.escape_debug();
        Error::invalid(match error {
            JsonKeysError::NotAnObject => format!(
                "the metadata of stream '{name}' is JSON, but not an object: write an object such \
                 as {{\"$maxCount\":10}}"
            ),
            JsonKeysError::NotJson(error) => {
                format!("the metadata of stream '{name}' is not JSON: {error}")
            }
        })
    })
}

/// Returns the metadata with another `$tb`; everything else stays byte for byte. Numbers may be of
/// any length, and the metadata grows at most by the key `$tb`. If there was no metadata, or no
/// JSON object, the result contains only this key.
pub fn with_truncate_before(old: Option<&[u8]>, truncate_before: u64) -> Vec<u8> {
    set_number(old, TRUNCATE_BEFORE, truncate_before)
}

/// Like [`with_truncate_before`], for metadata without `$tb`; `None` if it has one.
pub fn truncated_if_unset(data: &[u8], truncate_before: u64) -> Option<Vec<u8>> {
    let is_unset = value_of(Some(data), TRUNCATE_BEFORE).is_none();
    is_unset.then(|| set_number(Some(data), TRUNCATE_BEFORE, truncate_before))
}

/// The metadata with `$tb` 0; `None` unless its `$tb` is that of a deleted stream.
pub fn restored_if_deleted(data: &[u8]) -> Option<Vec<u8>> {
    let old = value_of(Some(data), TRUNCATE_BEFORE).and_then(|value| value.parse().ok());
    (old == Some(DELETED_TRUNCATE_BEFORE)).then(|| set_number(Some(data), TRUNCATE_BEFORE, 0))
}

/// A change of one key in a stream's metadata that keeps all other keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataUpdate {
    /// Sets `$tb`, unless it is higher. So no deleted or truncated event becomes readable.
    RaiseTruncateBefore(u64),
    /// Sets `$maxCount`, unless the metadata has it.
    DefaultMaxCount(u64),
    /// Replaces `$maxCount`, if it has the old value.
    ReplaceMaxCount {
        /// The value that is replaced.
        old: u64,
        /// The value that replaces it.
        new: u64,
    },
}

impl MetadataUpdate {
    /// Returns the updated metadata; `None` if nothing changes. Metadata that is no JSON object
    /// counts as empty.
    pub(crate) fn apply(self, old: Option<&[u8]>) -> Option<Vec<u8>> {
        let (key, value, is_done) = match self {
            MetadataUpdate::RaiseTruncateBefore(first) => {
                let before = value_of(old, TRUNCATE_BEFORE).and_then(|value| value.parse().ok());
                (TRUNCATE_BEFORE, first, before.unwrap_or(0) >= first)
            }
            MetadataUpdate::DefaultMaxCount(count) => {
                (MAX_COUNT, count, value_of(old, MAX_COUNT).is_some())
            }
            MetadataUpdate::ReplaceMaxCount { old: from, new: to } => {
                let present = value_of(old, MAX_COUNT).and_then(|value| value.parse().ok());
                (MAX_COUNT, to, present != Some(from))
            }
        };
        (!is_done).then(|| set_number(old, key, value))
    }
}

/// The value of this key, if `data` is a JSON object with it.
fn value_of<'a>(data: Option<&'a [u8]>, key: &str) -> Option<&'a str> {
    read_json_keys(data?, [key]).ok().and_then(|[value]| value)
}

/// The object with this number; one with the number only if there is no object.
fn set_number(old: Option<&[u8]>, key: &str, value: u64) -> Vec<u8> {
    let new = old.and_then(|old| with_number(old, key, value).ok());
    new.unwrap_or_else(|| format!("{{\"{key}\":{value}}}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_limits_the_readable_events() {
        let settings =
            RetentionRules::parse("a", br#"{"$tb":5,"$maxCount":3,"$maxAge":60,"x":[1]}"#);
        let settings = settings.expect("good metadata");
        let wanted =
            RetentionRules { truncate_before: 5, max_count: Some(3), max_age_seconds: Some(60) };
        assert_eq!(settings, wanted);
        assert_eq!((settings.first_revision(4), settings.first_revision(9)), (5, 7));
        let general = br#"{"$acl":"$systemStreamAcl"}"#;
        for nothing in [&b"{}"[..], general, br#"{"$acl":"$userStreamAcl"}"#] {
            assert!(
                RetentionRules::parse("a", nothing).expect("good") == RetentionRules::default()
            );
        }
        let deleted = with_truncate_before(Some(br#"{"$acl":{}}"#), DELETED_TRUNCATE_BEFORE);
        assert!(RetentionRules::parse("a", &deleted).expect("made").is_deleted());
        assert_eq!(deleted, br#"{"$acl":{},"$tb":9223372036854775807}"#);
    }

    /// Regression: any user could append metadata of 8 MiB with an ACL of millions of names. The
    /// cached ACL took a hundred megabytes of memory. An error message repeated an invalid value of
    /// several megabytes.
    #[test]
    fn oversized_acl_is_rejected_without_quoting_it() {
        let names = |count: usize| vec!["a"; count];
        let metadata = |count: usize| {
            serde_json::to_vec(&serde_json::json!({ "$acl": { "$r": names(count) }, "x": " " }))
        };
        let fits = metadata((ACL_BYTES_MAX - 8) / 4).expect("JSON");
        assert!(fits.len() > ACL_BYTES_MAX);
        RetentionRules::validate("a", &fits).expect("it fits");
        let long = metadata(ACL_BYTES_MAX / 4).expect("JSON");
        let error = RetentionRules::validate("a", &long).expect_err("it is too long").to_string();
        assert!(error.contains("has 65544 bytes, but may have at most 65536"), "{error}");
        assert!(RetentionRules::parse("a", &long).is_ok(), "what stands there is read");
        let other = serde_json::to_vec(&serde_json::json!({ "x": names(ACL_BYTES_MAX / 2) }));
        RetentionRules::validate("a", &other.expect("JSON")).expect("others may be long");
        for key in ["$acl", "$maxCount"] {
            let wrong = serde_json::json!({ key: "é".repeat(1 << 20) }).to_string();
            let error =
                RetentionRules::parse("a", wrong.as_bytes()).expect_err("a text").to_string();
            assert!(error.len() < 600 && error.contains("é…"), "{error}");
        }
    }

    /// Story: metadata of 7.9 MiB was parsed into a tree of 0.8 GB in the commit path.
    #[test]
    fn metadata_over_256_kib_is_rejected_with_a_remedy() {
        let metadata = |bytes: usize| format!(r#"{{"x":"{}"}}"#, "y".repeat(bytes - 8));
        let longest = metadata(METADATA_BYTES_MAX);
        RetentionRules::validate("a", longest.as_bytes()).expect("it fits");
        validate_settings(longest.as_bytes()).expect("it fits");
        let long = metadata(METADATA_BYTES_MAX + 1);
        for error in [
            RetentionRules::validate("a", long.as_bytes()).map(drop),
            validate_settings(long.as_bytes()),
        ] {
            let error = error.expect_err("too long").to_string();
            assert!(error.contains("has 262145 bytes, but may have at most 262144"), "{error}");
            assert!(error.contains("append long content as an event"), "{error}");
        }
        assert!(RetentionRules::parse("a", long.as_bytes()).is_ok(), "imported metadata is read");
    }

    #[test]
    fn blanks_of_an_acl_do_not_count() {
        for (json, bytes) in [("{ \"a b\\\" c\" : [ 1,\n2 ] }", 17), (r#"{"\\" : " "}"#, 10)] {
            assert_eq!(bytes_without_blanks(json), bytes, "{json}");
        }
    }

    /// The general ACLs are in memory as long as the server runs.
    #[test]
    fn oversized_general_acl_is_rejected() {
        for key in DEFAULT_ACL_NAMES {
            let settings = |count: usize| {
                let value = serde_json::json!({ key: { "$r": vec!["a"; count] } });
                serde_json::to_vec(&value).expect("JSON")
            };
            validate_settings(&settings((ACL_BYTES_MAX - 8) / 4)).expect("it fits");
            let error = validate_settings(&settings(ACL_BYTES_MAX / 4)).expect_err("too long");
            let error = error.to_string();
            assert!(error.contains(key) && error.contains("has 65544 bytes"), "{error}");
        }
        validate_settings(&vec![b'x'; ACL_BYTES_MAX + 1]).expect("no JSON has no ACL");
    }

    /// Regression: deleting a stream, or appending to a deleted one, parsed numbers in the stream's
    /// metadata as 64 bits and wrote these back. Amounts lost digits, and `1e300` became a number
    /// of 300 digits.
    #[test]
    fn new_truncation_keeps_other_metadata_unchanged() {
        let rest = r#""amount":12345678901234567890123.10,"big":1e300,"deep":"#;
        let deep = "[".repeat(500) + &"]".repeat(500);
        let old = format!(r#" {{ "$tb" : 3 , {rest}{deep} , "z":"\u00e4 é" }} "#);
        let new = with_truncate_before(Some(old.as_bytes()), 9);
        let new = String::from_utf8(new).expect("text");
        assert_eq!(new, format!(r#"{{"$tb":9,{rest}{deep},"z":"\u00e4 é"}}"#));
        for old in [None, Some(&b"no json"[..]), Some(b"[1]")] {
            assert_eq!(with_truncate_before(old, 9), br#"{"$tb":9}"#);
        }
    }

    #[test]
    fn metadata_update_changes_one_key_only() {
        let old = br#"{"$acl":{"$r":["a"]}, "$maxAge": 1e1, "$tb":7}"#;
        let apply = |update: MetadataUpdate, old: Option<&[u8]>| {
            let new = update.apply(old);
            new.map(|new| String::from_utf8(new).expect("text"))
        };
        for (first, wanted) in [(0, None), (6, None), (7, None), (8, Some(8))] {
            let wanted = wanted
                .map(|tb: u64| format!(r#"{{"$acl":{{"$r":["a"]}},"$maxAge":1e1,"$tb":{tb}}}"#));
            assert_eq!(apply(MetadataUpdate::RaiseTruncateBefore(first), Some(old)), wanted);
        }
        let deleted = with_truncate_before(None, DELETED_TRUNCATE_BEFORE);
        assert_eq!(apply(MetadataUpdate::RaiseTruncateBefore(9), Some(&deleted)), None);
        let limited = apply(MetadataUpdate::DefaultMaxCount(5), Some(&deleted));
        assert_eq!(limited.as_deref(), Some(r#"{"$maxCount":5,"$tb":9223372036854775807}"#));
        let replace = MetadataUpdate::ReplaceMaxCount { old: 5, new: 70 };
        let replaced = apply(replace, Some(br#"{"$maxCount":5,"x":1e2}"#));
        assert_eq!(replaced.as_deref(), Some(r#"{"$maxCount":70,"x":1e2}"#));
        for other in [None, Some(&b"{}"[..]), Some(br#"{"$maxCount":6}"#), Some(b"[junk")] {
            assert_eq!(apply(replace, other), None);
        }
        assert_eq!(apply(MetadataUpdate::DefaultMaxCount(5), Some(br#"{"$maxCount":2}"#)), None);
        for old in [None, Some(&b"no json"[..]), Some(b"[]")] {
            let new = apply(MetadataUpdate::DefaultMaxCount(5), old);
            assert_eq!(new.as_deref(), Some(r#"{"$maxCount":5}"#));
        }
    }

    #[test]
    fn invalid_metadata_error_names_the_cause() {
        let cases: [(&[u8], &str); 8] = [
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b"[1]", "not an object"),
            (br#"{"$tb":-1}"#, "$tb"),
            (br#"{"$maxCount":0}"#, "$maxCount"),
            (br#"{"$maxAge":"1h"}"#, "$maxAge"),
            (br#"{"$acl":7}"#, "$acl"),
            (br#"{"$acl":"ada"}"#, "$acl"),
        ];
        for (data, why) in cases {
            let message = RetentionRules::parse("cart-1", data).expect_err("refused").to_string();
            assert!(message.contains(why) && message.contains("'cart-1'"), "{message}");
        }
    }
}
