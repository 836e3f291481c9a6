//! Converts keys and values to text with escapes, hex or JSON, and back.
//!
//! INVARIANT: an escaped text has no tab, no line break and no control character. So one entry is
//! one line, and the first tab ends the key.

use std::ffi::OsStr;

use serde_json::{Map, Value, json};

use crate::errors::{CommandError, CommandResult};

/// Form in which bytes are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteFormat {
    /// Printable UTF-8 stays; `\`, control characters, characters that change the direction of the
    /// text, and other bytes become `\\ \t \n \r \xNN`.
    Escaped,
    /// Hex, two lower-case digits for each byte.
    Hex,
    /// The bytes unchanged.
    Raw,
}

impl ByteFormat {
    /// Returns the format that the flags `--hex` and `--raw` select.
    pub fn from_flags(hex: bool, raw: bool) -> ByteFormat {
        match (hex, raw) {
            (true, _) => ByteFormat::Hex,
            (false, true) => ByteFormat::Raw,
            (false, false) => ByteFormat::Escaped,
        }
    }

    /// Appends `bytes` in this format to `out`.
    pub fn write(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            ByteFormat::Raw => out.extend_from_slice(bytes),
            ByteFormat::Hex => out.extend_from_slice(hex(bytes).as_bytes()),
            ByteFormat::Escaped => escape(bytes, out),
        }
    }
}

/// Returns `bytes` with escapes, for a message.
pub fn escaped(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape(bytes, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.extend_from_slice(b"\\\\"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                character => {
                    let mut buffer = [0; 4];
                    let encoded = character.encode_utf8(&mut buffer).as_bytes();
                    if character.is_control() || changes_direction(character) {
                        escape_bytes(encoded, out);
                    } else {
                        out.extend_from_slice(encoded);
                    }
                }
            }
        }
        escape_bytes(chunk.invalid(), out);
    }
}

/// Returns a text of a client, server or store as one line: control characters, and those that
/// change the direction of the text, become `\uXXXX`. `\` stays, so that JSON keeps its meaning,
/// and a printed command can be pasted into a shell.
pub fn printable_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() || changes_direction(character) {
            true => line.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => line.push(character),
        }
    }
    line
}

/// Whether a terminal can show the text around the character in another order.
fn changes_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

fn escape_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
    }
}

/// Returns the bytes as hex, two lower-case digits each.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Decodes hex; the error is the end of a sentence about the text.
pub fn parse_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) {
        return Err(format!("has {} hex digits, which is not an even number", text.len()));
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    text.chunks_exact(2)
        .map(|pair| match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => Ok(high << 4 | low),
            _ => Err(format!("has `{}`, which is not hex", escaped(pair))),
        })
        .collect()
}

/// Decodes a key or value given as an argument: as its bytes, or as hex.
pub fn parse_argument(name: &str, text: &OsStr, is_hex: bool) -> CommandResult<Vec<u8>> {
    let bytes = text.as_encoded_bytes();
    if !is_hex {
        return Ok(bytes.to_vec());
    }
    parse_hex(bytes)
        .map_err(|reason| CommandError::usage(format!("the {name} {reason}; see --hex")))
}

/// Adds the bytes to a JSON object: as `name` if they are UTF-8 and `is_hex` is false, otherwise as
/// `name_hex`.
pub fn json_field(object: &mut Map<String, Value>, name: &str, bytes: &[u8], is_hex: bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) if !is_hex => object.insert(name.to_string(), json!(text)),
        _ => object.insert(format!("{name}_hex"), json!(hex(bytes))),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_keep_an_entry_on_one_line() {
        assert_eq!(escaped("käse/1".as_bytes()), "käse/1");
        assert_eq!(escaped(b"a\tb\nc\rd\\e"), "a\\tb\\nc\\rd\\\\e");
        assert_eq!(escaped(b"\x00\x1b[\xff\xc3"), "\\x00\\x1b[\\xff\\xc3");
        assert_eq!(escaped("\u{85}".as_bytes()), "\\xc2\\x85");
        assert_eq!(escaped("a\u{202e}b".as_bytes()), "a\\xe2\\x80\\xaeb");
    }

    #[test]
    fn printable_lines_keep_json_and_commands() {
        assert_eq!(printable_line(r"umbel verify --db 'it'\''s'"), r"umbel verify --db 'it'\''s'");
        assert_eq!(printable_line("a\n\u{9b}2J\u{202e}käse"), r"a\u000a\u009b2J\u202ekäse");
        let value = json!({ "name": "a\u{202e}b\u{85}\\c\"" });
        let line = printable_line(&value.to_string());
        assert!(line.is_ascii(), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    #[test]
    fn hex_round_trips() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(parse_hex(hex(&bytes).as_bytes()), Ok(bytes));
        assert_eq!(parse_hex(b"AbFf"), Ok(vec![0xab, 0xff]));
        assert!(parse_hex(b"abc").unwrap_err().contains("3 hex digits"));
        assert!(parse_hex(b"a g0").unwrap_err().contains("not hex"));
    }

    #[test]
    fn json_field_names_state_byte_encoding() {
        let mut object = Map::new();
        json_field(&mut object, "key", b"ada", false);
        json_field(&mut object, "value", b"\xff", false);
        assert_eq!(Value::Object(object).to_string(), r#"{"key":"ada","value_hex":"ff"}"#);
    }
}
