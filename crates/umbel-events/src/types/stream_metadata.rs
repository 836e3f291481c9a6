//! [`Settings`]: what the metadata of a stream says about what of it can be read.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::limits::ACL_BYTES_MAX;

/// So many characters are shown of what is wrong.
const SHOWN: usize = 100;

/// `$tb` of a stream that was deleted: everything is before it.
pub const DELETED: u64 = i64::MAX as u64;

/// What a stream's metadata may name in place of an ACL: what holds for streams that have none.
const GENERAL_ACLS: [&str; 2] = ["$userStreamAcl", "$systemStreamAcl"];

/// What the metadata of a stream says about what of it can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// Events with lower revisions are gone (`$tb`).
    pub truncate_before: u64,
    /// Only so many of the newest events stay (`$maxCount`).
    pub max_count: Option<u64>,
    /// Events older than so many seconds are gone (`$maxAge`).
    pub max_age_seconds: Option<u64>,
}

impl Settings {
    /// Those of a stream that holds the metadata of another: the last event is what counts.
    pub const OF_METADATA: Settings =
        Settings { truncate_before: 0, max_count: Some(1), max_age_seconds: None };

    /// Whether the stream was deleted, to be created again by the next append.
    pub fn is_deleted(&self) -> bool {
        self.truncate_before == DELETED
    }

    /// The lowest revision that can be read of a stream whose last is `last`; ages are looked at
    /// event by event.
    pub fn first_revision(&self, last: u64) -> u64 {
        let counted = self.max_count.map_or(0, |count| (last + 1).saturating_sub(count));
        counted.max(self.truncate_before)
    }

    /// Reads metadata.
    ///
    /// # Errors
    /// `Invalid` where it is no JSON object, or one of these keys is not what it must be.
    pub fn parse(subject: &str, data: &[u8]) -> Result<Settings> {
        Settings::of(subject, &parse_object(subject, data)?)
    }

    /// Looks at metadata that is to be appended.
    ///
    /// # Errors
    /// `Invalid` where [`parse`](Settings::parse) says so, and where the ACL is longer than one may
    /// be.
    pub fn check(subject: &str, data: &[u8]) -> Result<()> {
        let object = parse_object(subject, data)?;
        Settings::of(subject, &object)?;
        let acl = object.get("$acl").filter(|_| data.len() > ACL_BYTES_MAX);
        let bytes = acl.map_or(0, |acl| acl.to_string().len());
        if bytes <= ACL_BYTES_MAX {
            return Ok(());
        }
        let name = subject.escape_debug();
        Err(Error::invalid(format!(
            "$acl in the metadata of stream '{name}' has {bytes} bytes, but may have \
             {ACL_BYTES_MAX}; name groups in place of users"
        )))
    }

    fn of(subject: &str, object: &Map<String, Value>) -> Result<Settings> {
        let number = |key: &str, least: u64| -> Result<Option<u64>> {
            let Some(value) = object.get(key) else { return Ok(None) };
            let number = value.as_u64().filter(|n| (least..=DELETED).contains(n));
            number.map(Some).ok_or_else(|| {
                let most = DELETED;
                let (name, value) = (subject.escape_debug(), shown(value));
                Error::invalid(format!(
                    "{key} in the metadata of stream '{name}' is {value}, but must be a whole \
                     number from {least} to {most}"
                ))
            })
        };
        let is_acl = |value: &Value| {
            value.is_object() || value.as_str().is_some_and(|name| GENERAL_ACLS.contains(&name))
        };
        if let Some(value) = object.get("$acl").filter(|value| !is_acl(value)) {
            let (name, value) = (subject.escape_debug(), shown(value));
            return Err(Error::invalid(format!(
                "$acl in the metadata of stream '{name}' is {value}, but must be an object or the \
                 name of a general one, \"$userStreamAcl\" or \"$systemStreamAcl\""
            )));
        }
        number("$cacheControl", 1)?;
        Ok(Settings {
            truncate_before: number("$tb", 0)?.unwrap_or(0),
            max_count: number("$maxCount", 1)?,
            max_age_seconds: number("$maxAge", 1)?,
        })
    }
}

/// What is wrong, or its beginning: it may have megabytes.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn parse_object(subject: &str, data: &[u8]) -> Result<Map<String, Value>> {
    let name = || subject.escape_debug().to_string();
    match serde_json::from_slice(data) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Error::invalid(format!(
            "the metadata of stream '{}' is JSON, but no object: write {{\"$maxCount\":10}} or \
             the like",
            name()
        ))),
        Err(error) => {
            Err(Error::invalid(format!("the metadata of stream '{}' is no JSON: {error}", name())))
        }
    }
}

/// The metadata with another `$tb`, everything else to the letter as it was: numbers may be of any
/// length, and it becomes longer by this key at most. Without any, or where it was no JSON object,
/// it is all there is.
///
/// # Errors
/// None that could happen: what was read can be written.
pub fn with_truncate_before(old: Option<&[u8]>, truncate_before: u64) -> Result<Vec<u8>> {
    let old: Option<BTreeMap<String, Box<RawValue>>> =
        old.and_then(|data| serde_json::from_slice(data).ok());
    let internal = |error| Error::invalid(format!("internal: metadata cannot be written: {error}"));
    let mut object = old.unwrap_or_default();
    object.insert("$tb".to_string(), to_raw_value(&truncate_before).map_err(internal)?);
    serde_json::to_vec(&object).map_err(internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_says_what_can_be_read() {
        let settings = Settings::parse("a", br#"{"$tb":5,"$maxCount":3,"$maxAge":60,"x":[1]}"#);
        let settings = settings.expect("good metadata");
        let wanted = Settings { truncate_before: 5, max_count: Some(3), max_age_seconds: Some(60) };
        assert_eq!(settings, wanted);
        assert_eq!((settings.first_revision(4), settings.first_revision(9)), (5, 7));
        let general = br#"{"$acl":"$systemStreamAcl"}"#;
        for nothing in [&b"{}"[..], general, br#"{"$acl":"$userStreamAcl"}"#] {
            assert!(Settings::parse("a", nothing).expect("good") == Settings::default());
        }
        let deleted = with_truncate_before(Some(br#"{"$acl":{}}"#), DELETED).expect("written");
        assert!(Settings::parse("a", &deleted).expect("made").is_deleted());
        assert_eq!(deleted, br#"{"$acl":{},"$tb":9223372036854775807}"#);
    }

    /// Story: any user may append metadata of 8 MiB with an ACL of millions of names, which took a
    /// hundred megabytes of memory as long as it was known; and an error repeated what was wrong,
    /// megabytes of it.
    #[test]
    fn no_acl_is_long_and_no_error_repeats_what_is() {
        let names = |count: usize| vec!["a"; count];
        let metadata = |count: usize| {
            serde_json::to_vec(&serde_json::json!({ "$acl": { "$r": names(count) }, "x": " " }))
        };
        let fits = metadata((ACL_BYTES_MAX - 8) / 4).expect("JSON");
        assert!(fits.len() > ACL_BYTES_MAX);
        Settings::check("a", &fits).expect("it fits");
        let long = metadata(ACL_BYTES_MAX / 4).expect("JSON");
        let error = Settings::check("a", &long).expect_err("it is too long").to_string();
        assert!(error.contains("has 65544 bytes, but may have 65536"), "{error}");
        assert!(Settings::parse("a", &long).is_ok(), "what stands there is read");
        let other = serde_json::to_vec(&serde_json::json!({ "x": names(ACL_BYTES_MAX) }));
        Settings::check("a", &other.expect("JSON")).expect("others may be long");
        for key in ["$acl", "$maxCount"] {
            let wrong = serde_json::json!({ key: "é".repeat(1 << 20) }).to_string();
            let error = Settings::check("a", wrong.as_bytes()).expect_err("a text").to_string();
            assert!(error.len() < 600 && error.contains("é…"), "{error}");
        }
    }

    /// Deleting a stream, or appending to a deleted one, read its metadata as numbers of 64 bits
    /// and wrote these: amounts lost digits, and `1e300` became three hundred of them.
    #[test]
    fn another_truncation_leaves_the_rest_as_it_is() {
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
    fn wrong_metadata_is_told_what_is_wrong() {
        let cases: [(&[u8], &str); 8] = [
            (b"", "no JSON"),
            (b"{", "no JSON"),
            (b"[1]", "no object"),
            (br#"{"$tb":-1}"#, "$tb"),
            (br#"{"$maxCount":0}"#, "$maxCount"),
            (br#"{"$maxAge":"1h"}"#, "$maxAge"),
            (br#"{"$acl":7}"#, "$acl"),
            (br#"{"$acl":"ada"}"#, "$acl"),
        ];
        for (data, why) in cases {
            let said = Settings::parse("cart-1", data).expect_err("refused").to_string();
            assert!(said.contains(why) && said.contains("'cart-1'"), "{said}");
        }
    }
}
