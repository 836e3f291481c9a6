//! [`RetentionRules`]: the part of a stream's metadata that hides events.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::limits::ACL_BYTES_MAX;
use crate::types::error::{Error, Result};

/// Maximum number of characters of an invalid value in a message.
const SHOWN_CHARS_MAX: usize = 100;

/// `$tb` of a deleted stream, which hides every event.
pub const DELETED_TRUNCATE_BEFORE: u64 = i64::MAX as u64;

const TRUNCATE_BEFORE: &str = "$tb";
const MAX_COUNT: &str = "$maxCount";

/// Strings that may stand for an ACL in a stream's metadata: they name the default ACLs.
const DEFAULT_ACL_NAMES: [&str; 2] = ["$userStreamAcl", "$systemStreamAcl"];

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
        RetentionRules::from_object(subject, &parse_object(subject, data)?)
    }

    /// Validates metadata that is to be appended.
    ///
    /// # Errors
    /// `Invalid` if [`parse`](RetentionRules::parse) fails, or if the ACL is too long.
    pub fn validate(subject: &str, data: &[u8]) -> Result<()> {
        let object = parse_object(subject, data)?;
        RetentionRules::from_object(subject, &object)?;
        if data.len() <= ACL_BYTES_MAX {
            return Ok(());
        }
        let place = || format!("the metadata of stream '{}'", subject.escape_debug());
        check_acl_bytes(&object, "$acl", place)
    }

    fn from_object(subject: &str, object: &Map<String, Value>) -> Result<RetentionRules> {
        let number = |key: &str, min: u64| -> Result<Option<u64>> {
            let Some(value) = object.get(key) else { return Ok(None) };
            let number = value.as_u64().filter(|n| (min..=DELETED_TRUNCATE_BEFORE).contains(n));
            number.map(Some).ok_or_else(|| {
                let max = DELETED_TRUNCATE_BEFORE;
                let (name, value) = (subject.escape_debug(), shorten_value(value));
                Error::invalid(format!(
                    "{key} in the metadata of stream '{name}' is {value}, but must be a whole \
                     number from {min} to {max}"
                ))
            })
        };
        let is_acl = |value: &Value| {
            value.is_object()
                || value.as_str().is_some_and(|name| DEFAULT_ACL_NAMES.contains(&name))
        };
        if let Some(value) = object.get("$acl").filter(|value| !is_acl(value)) {
            let (name, value) = (subject.escape_debug(), shorten_value(value));
            return Err(Error::invalid(format!(
                "$acl in the metadata of stream '{name}' is {value}, but must be an object or the \
                 name of a default ACL, \"$userStreamAcl\" or \"$systemStreamAcl\""
            )));
        }
        number("$cacheControl", 1)?;
        Ok(RetentionRules {
            truncate_before: number("$tb", 0)?.unwrap_or(0),
            max_count: number("$maxCount", 1)?,
            max_age_seconds: number("$maxAge", 1)?,
        })
    }
}

/// Validates data that is to be appended to the stream with the general ACLs. Other errors than an
/// ACL that is too long have an effect: only administrators have access.
///
/// # Errors
/// `Invalid` if a general ACL is too long.
pub fn validate_settings(data: &[u8]) -> Result<()> {
    if data.len() <= ACL_BYTES_MAX {
        return Ok(());
    }
    let Ok(Value::Object(object)) = serde_json::from_slice(data) else { return Ok(()) };
    let place = || "stream '$settings'".to_string();
    DEFAULT_ACL_NAMES.iter().try_for_each(|name| check_acl_bytes(&object, name, place))
}

/// Returns an error where the ACL under this key is too long.
fn check_acl_bytes(
    object: &Map<String, Value>,
    key: &str,
    place: impl Fn() -> String,
) -> Result<()> {
    let bytes = object.get(key).map_or(0, |acl| acl.to_string().len());
    if bytes <= ACL_BYTES_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{key} in {} has {bytes} bytes, but may have at most {ACL_BYTES_MAX}; name \
         groups instead of users",
        place()
    )))
}

/// Shortens an invalid value, which may have megabytes.
fn shorten_value(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn parse_object(subject: &str, data: &[u8]) -> Result<Map<String, Value>> {
    let name = || subject.escape_debug().to_string();
    match serde_json::from_slice(data) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Error::invalid(format!(
            "the metadata of stream '{}' is JSON, but not an object: write an object such as \
             {{\"$maxCount\":10}}",
            name()
        ))),
        Err(error) => {
            Err(Error::invalid(format!("the metadata of stream '{}' is not JSON: {error}", name())))
        }
    }
}

/// Returns the metadata with another `$tb`; everything else stays byte for byte. Numbers may be of
/// any length, and the metadata grows at most by the key `$tb`. If there was no metadata, or no
/// JSON object, the result contains only this key.
///
/// # Errors
/// None in practice: parsed metadata can be written.
pub fn with_truncate_before(old: Option<&[u8]>, truncate_before: u64) -> Result<Vec<u8>> {
    let old = old.and_then(|data| serde_json::from_slice(data).ok());
    set_number(old.unwrap_or_default(), TRUNCATE_BEFORE, truncate_before)
}

/// Like [`with_truncate_before`], for metadata without `$tb`; `None` if it has one.
///
/// # Errors
/// None in practice: parsed metadata can be written.
pub fn truncated_if_unset(data: &[u8], truncate_before: u64) -> Result<Option<Vec<u8>>> {
    let keys: RawKeys = serde_json::from_slice(data).unwrap_or_default();
    if keys.contains_key(TRUNCATE_BEFORE) {
        return Ok(None);
    }
    set_number(keys, TRUNCATE_BEFORE, truncate_before).map(Some)
}

/// The metadata with `$tb` 0; `None` unless its `$tb` is that of a deleted stream.
///
/// # Errors
/// None in practice: parsed metadata can be written.
pub fn restored_if_deleted(data: &[u8]) -> Result<Option<Vec<u8>>> {
    let keys: RawKeys = serde_json::from_slice(data).unwrap_or_default();
    let is_deleted = |value: &RawValue| value.get().parse() == Ok(DELETED_TRUNCATE_BEFORE);
    match keys.get(TRUNCATE_BEFORE).is_some_and(|value| is_deleted(value)) {
        true => set_number(keys, TRUNCATE_BEFORE, 0).map(Some),
        false => Ok(None),
    }
}

/// A change of one key in a stream's metadata that keeps all other keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataUpdate {
    /// Sets `$tb`, unless it is higher. So no deleted or truncated event becomes readable.
    RaiseTruncateBefore(u64),
    /// Sets `$maxCount`, unless the metadata has it.
    DefaultMaxCount(u64),
}

impl MetadataUpdate {
    /// Returns the updated metadata; `None` if nothing changes. Metadata that is no JSON object
    /// counts as empty.
    pub(crate) fn apply(self, old: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let old = old.and_then(|data| serde_json::from_slice(data).ok());
        let keys: RawKeys = old.unwrap_or_default();
        let (key, value, is_done) = match self {
            MetadataUpdate::RaiseTruncateBefore(first) => {
                let old = keys.get(TRUNCATE_BEFORE).and_then(|old| old.get().parse::<u64>().ok());
                (TRUNCATE_BEFORE, first, old.unwrap_or(0) >= first)
            }
            MetadataUpdate::DefaultMaxCount(count) => {
                (MAX_COUNT, count, keys.contains_key(MAX_COUNT))
            }
        };
        if is_done { Ok(None) } else { set_number(keys, key, value).map(Some) }
    }
}

/// Metadata whose values are kept byte for byte.
type RawKeys = BTreeMap<String, Box<RawValue>>;

fn set_number(mut keys: RawKeys, key: &str, value: u64) -> Result<Vec<u8>> {
    let internal = |error| Error::invalid(format!("internal: metadata cannot be written: {error}"));
    keys.insert(key.to_string(), to_raw_value(&value).map_err(internal)?);
    serde_json::to_vec(&keys).map_err(internal)
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
        let deleted = with_truncate_before(Some(br#"{"$acl":{}}"#), DELETED_TRUNCATE_BEFORE)
            .expect("written");
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
        let other = serde_json::to_vec(&serde_json::json!({ "x": names(ACL_BYTES_MAX) }));
        RetentionRules::validate("a", &other.expect("JSON")).expect("others may be long");
        for key in ["$acl", "$maxCount"] {
            let wrong = serde_json::json!({ key: "é".repeat(1 << 20) }).to_string();
            let error =
                RetentionRules::validate("a", wrong.as_bytes()).expect_err("a text").to_string();
            assert!(error.len() < 600 && error.contains("é…"), "{error}");
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
        let new = with_truncate_before(Some(old.as_bytes()), 9).expect("written");
        let new = String::from_utf8(new).expect("text");
        assert_eq!(new, format!(r#"{{"$tb":9,{rest}{deep},"z":"\u00e4 é"}}"#));
        for old in [None, Some(&b"no json"[..]), Some(b"[1]")] {
            assert_eq!(with_truncate_before(old, 9).expect("written"), br#"{"$tb":9}"#);
        }
    }

    #[test]
    fn metadata_update_changes_one_key_only() {
        let old = br#"{"$acl":{"$r":["a"]}, "$maxAge": 1e1, "$tb":7}"#;
        let apply = |update: MetadataUpdate, old: Option<&[u8]>| {
            let new = update.apply(old).expect("written");
            new.map(|new| String::from_utf8(new).expect("text"))
        };
        for (first, wanted) in [(0, None), (6, None), (7, None), (8, Some(8))] {
            let wanted = wanted
                .map(|tb: u64| format!(r#"{{"$acl":{{"$r":["a"]}},"$maxAge":1e1,"$tb":{tb}}}"#));
            assert_eq!(apply(MetadataUpdate::RaiseTruncateBefore(first), Some(old)), wanted);
        }
        let deleted = with_truncate_before(None, DELETED_TRUNCATE_BEFORE).expect("written");
        assert_eq!(apply(MetadataUpdate::RaiseTruncateBefore(9), Some(&deleted)), None);
        let limited = apply(MetadataUpdate::DefaultMaxCount(5), Some(&deleted));
        assert_eq!(limited.as_deref(), Some(r#"{"$maxCount":5,"$tb":9223372036854775807}"#));
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
