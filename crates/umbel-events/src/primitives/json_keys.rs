//! Known keys of a JSON object, read without a tree of its values.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};
use serde_json::value::RawValue;

/// The reason why a text has no keys.
#[derive(Debug)]
pub enum JsonKeysError {
    /// The text is JSON, but no object.
    NotAnObject,
    /// The text is not JSON.
    NotJson(String),
}

/// Reads the values of these keys of a JSON object. Each value is the part of `data` that has it;
/// the last value of a repeated key counts. The memory is independent of the other keys' values.
///
/// # Errors
/// `data` is no JSON object.
pub fn read_json_keys<'a, const N: usize>(
    data: &'a [u8],
    keys: [&str; N],
) -> Result<[Option<&'a str>; N], JsonKeysError> {
    let not_json = |error: &dyn fmt::Display| JsonKeysError::NotJson(error.to_string());
    // A skipped value is not checked for this.
    let text = std::str::from_utf8(data).map_err(|error| not_json(&error))?;
    if !text.trim_ascii_start().starts_with('{') {
        return match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Err(JsonKeysError::NotAnObject),
            Err(error) => Err(not_json(&error)),
        };
    }
    let mut values = [None; N];
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let visitor = KeysVisitor { keys: &keys, values: &mut values };
    let read = deserializer.deserialize_map(visitor).and_then(|()| deserializer.end());
    read.map_err(|error| not_json(&error))?;
    Ok(values)
}

struct KeysVisitor<'k, 'a> {
    keys: &'k [&'k str],
    values: &'k mut [Option<&'a str>],
}

impl<'de> Visitor<'de> for KeysVisitor<'_, 'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(index) = map.next_key_seed(KeyIndex(self.keys))? {
            match index.and_then(|index| self.values.get_mut(index)) {
                Some(value) => *value = Some(map.next_value::<&'de RawValue>()?.get()),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Index of a key among the known ones.
struct KeyIndex<'k>(&'k [&'k str]);

impl<'de> DeserializeSeed<'de> for KeyIndex<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyIndex<'_> {
    type Value = Option<usize>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|known| *known == key))
    }
}

/// Copies a JSON object without blanks between its keys, and sets the number under one key. A new
/// key is placed before the first one that sorts after it. Other values stay byte for byte.
///
/// # Errors
/// `data` is no JSON object.
pub fn with_number(data: &[u8], key: &str, number: u64) -> Result<Vec<u8>, JsonKeysError> {
    let [present] = read_json_keys(data, [key])?;
    let mut out = Vec::with_capacity(data.len() + key.len() + 24);
    out.push(b'{');
    let is_set = present.is_none().then_some(false);
    let visitor = CopyVisitor { key, number, is_set, out: &mut out };
    let copied = serde_json::Deserializer::from_slice(data).deserialize_map(visitor);
    copied.map_err(|error| JsonKeysError::NotJson(error.to_string()))?;
    out.push(b'}');
    Ok(out)
}

struct CopyVisitor<'o> {
    key: &'o str,
    number: u64,
    /// Whether the new key was written; `None` where an existing key is replaced.
    is_set: Option<bool>,
    out: &'o mut Vec<u8>,
}

impl CopyVisitor<'_> {
    fn write<E: Error>(&mut self, key: &str, value: &str) -> Result<(), E> {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        serde_json::to_writer(&mut *self.out, key).map_err(E::custom)?;
        self.out.push(b':');
        self.out.extend_from_slice(value.as_bytes());
        Ok(())
    }
}

impl<'de> Visitor<'de> for CopyVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let number = self.number.to_string();
        let mut is_replaced = false;
        while let Some(key) = map.next_key::<JsonText>()? {
            let value = map.next_value::<&'de RawValue>()?.get();
            if *key.0 == *self.key {
                if !std::mem::replace(&mut is_replaced, true) {
                    self.write(&key.0, &number)?;
                }
                continue;
            }
            if self.is_set == Some(false) && *key.0 > *self.key {
                self.is_set = Some(true);
                self.write(self.key, &number)?;
            }
            self.write(&key.0, value)?;
        }
        if self.is_set == Some(false) { self.write(self.key, &number) } else { Ok(()) }
    }
}

/// A decoded JSON string.
struct JsonText(Box<str>);

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonText, D::Error> {
        Box::deserialize(deserializer).map(JsonText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_other_values_are_skipped() {
        let text = br#" {"x":[{"a":[1e999]}],"a":1,"\u0062": {"c" : 2} ,"a":null} "#;
        let read = read_json_keys(text, ["a", "b", "d"]).expect("an object");
        assert_eq!(read, [Some("null"), Some(r#"{"c" : 2}"#), None]);
        for wrong in ["", "{", "{} x", r#"{"a":1,}"#, "{\"a\":nul}", "[1", "nope"] {
            let read = read_json_keys(wrong.as_bytes(), ["a"]);
            assert!(matches!(read, Err(JsonKeysError::NotJson(_))), "{wrong}");
        }
        for other in ["[1]", "7", "null", r#""{}""#] {
            let read = read_json_keys(other.as_bytes(), ["a"]);
            assert!(matches!(read, Err(JsonKeysError::NotAnObject)), "{other}");
        }
        let invalid = read_json_keys(b"{\"x\":\"\xff\"}", ["a"]);
        assert!(matches!(invalid, Err(JsonKeysError::NotJson(_))));
        let deep = format!(r#"{{"x":{}{},"a":7}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read_json_keys(deep.as_bytes(), ["a"]).expect("an object"), [Some("7")]);
    }

    #[test]
    fn repeated_key_is_replaced_once() {
        let set = |text: &str| with_number(text.as_bytes(), "b", 5).expect("an object");
        assert_eq!(set(r#"{"b":1,"a":2,"b":3,"b" : 4}"#), br#"{"b":5,"a":2}"#);
        assert_eq!(set(r#"{"c":1}"#), br#"{"b":5,"c":1}"#);
        assert_eq!(set("{}"), br#"{"b":5}"#);
    }
}
