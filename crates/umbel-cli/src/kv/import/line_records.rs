//! The input formats with one record per line: lines, tsv, jsonl.

use std::io::{self, Read, Write};

use serde_json::Value;
use umbel_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::io::line_reader::{LineReader, ReadLine};
use crate::kv::import::import_record::{ImportRecord, NextRecord, Records, set_field};

/// Maximum bytes of a line besides key and value.
const PUNCTUATION_BYTES_MAX: usize = 1024;

fn too_long(limit: usize) -> Result<(), String> {
    Err(format!("the line has more than {limit} bytes, the maximum for a line of this format"))
}

/// Reads one line and passes it to `fill`, whose error is the reason why the line is no record.
fn next<R: Read>(
    lines: &mut LineReader<R>,
    limit: usize,
    record: &mut ImportRecord,
    fill: impl FnOnce(&[u8], &mut ImportRecord) -> Result<(), String>,
) -> io::Result<NextRecord> {
    let Some(line) = lines.next()? else { return Ok(NextRecord::End) };
    record.line = lines.count();
    let filled = match line {
        ReadLine::Whole => fill(lines.line(), record),
        ReadLine::TooLong => too_long(limit),
    };
    Ok(match filled {
        Ok(()) => NextRecord::Entry,
        Err(reason) => NextRecord::Bad { line: record.line, reason },
    })
}

/// Records of the format lines: the line is the key, the line's number is the value.
pub struct LineRecords<R> {
    lines: LineReader<R>,
    limit: usize,
    hex: bool,
}

impl<R: Read> LineRecords<R> {
    /// Creates the records of `input`.
    pub fn new(input: R, hex: bool) -> LineRecords<R> {
        let limit = if hex { 2 * KEY_BYTES_MAX } else { KEY_BYTES_MAX };
        LineRecords { lines: LineReader::new(input, limit), limit, hex }
    }
}

impl<R: Read> Records for LineRecords<R> {
    fn next(&mut self, record: &mut ImportRecord) -> io::Result<NextRecord> {
        let hex = self.hex;
        next(&mut self.lines, self.limit, record, |line, record| {
            set_field("key", &mut record.key, line, hex)?;
            record.value.clear();
            // Writing to memory cannot fail.
            let _ = write!(record.value, "{}", record.line);
            Ok(())
        })
    }

    fn lines(&self) -> u64 {
        self.lines.count()
    }
}

/// Records of the format tsv: key, tab, value; further tabs belong to the value.
pub struct TsvRecords<R> {
    lines: LineReader<R>,
    limit: usize,
    hex: bool,
}

impl<R: Read> TsvRecords<R> {
    /// Creates the records of `input`.
    pub fn new(input: R, hex: bool) -> TsvRecords<R> {
        let bytes = KEY_BYTES_MAX + VALUE_BYTES_MAX;
        let limit = if hex { 2 * bytes + 1 } else { bytes + 1 };
        TsvRecords { lines: LineReader::new(input, limit), limit, hex }
    }
}

impl<R: Read> Records for TsvRecords<R> {
    fn next(&mut self, record: &mut ImportRecord) -> io::Result<NextRecord> {
        let hex = self.hex;
        next(&mut self.lines, self.limit, record, |line, record| {
            match line.iter().position(|byte| *byte == b'\t') {
                Some(tab) => record.fill(&line[..tab], &line[tab + 1..], hex),
                None => Err("there is no tab between key and value".to_string()),
            }
        })
    }

    fn lines(&self) -> u64 {
        self.lines.count()
    }
}

/// Records of the format jsonl: one object per line, as `umbel scan --json` prints them; empty
/// lines are skipped.
pub struct JsonRecords<R> {
    lines: LineReader<R>,
    limit: usize,
}

impl<R: Read> JsonRecords<R> {
    /// Creates the records of `input`.
    pub fn new(input: R) -> JsonRecords<R> {
        // Hex takes two bytes for one; longer spellings of long values are refused.
        let limit = 2 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + PUNCTUATION_BYTES_MAX;
        JsonRecords { lines: LineReader::new(input, limit), limit }
    }
}

impl<R: Read> Records for JsonRecords<R> {
    fn next(&mut self, record: &mut ImportRecord) -> io::Result<NextRecord> {
        loop {
            let mut empty = false;
            let step = next(&mut self.lines, self.limit, record, |line, record| {
                empty = line.trim_ascii().is_empty();
                if empty { Ok(()) } else { parse(line, record) }
            })?;
            if !empty || step == NextRecord::End {
                return Ok(step);
            }
        }
    }

    fn lines(&self) -> u64 {
        self.lines.count()
    }
}

fn parse(line: &[u8], record: &mut ImportRecord) -> Result<(), String> {
    let object: Value = serde_json::from_slice(line).map_err(|error| {
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or(&what).to_string();
        format!("the line is not valid JSON at byte {}: {what}", error.column())
    })?;
    take_field("key", &object, &mut record.key)?;
    take_field("value", &object, &mut record.value)
}

/// Removes the field `name` or `name_hex` from the object and returns its bytes.
fn take_field(name: &str, object: &Value, target: &mut Vec<u8>) -> Result<(), String> {
    let name_hex = format!("{name}_hex");
    let (found, field, hex) = match (object.get(name), object.get(&name_hex)) {
        (Some(_), Some(_)) => {
            return Err(format!("the object has both \"{name}\" and \"{name_hex}\""));
        }
        (Some(field), None) => (name, field, false),
        (None, Some(field)) => (name_hex.as_str(), field, true),
        (None, None) => {
            return Err(format!("the object has neither \"{name}\" nor \"{name_hex}\""));
        }
    };
    match field {
        Value::String(text) => set_field(found, target, text.as_bytes(), hex),
        _ => Err(format!("the value of \"{found}\" is not a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(records: &mut dyn Records) -> Result<(Vec<u8>, Vec<u8>), String> {
        let mut record = ImportRecord::default();
        match records.next(&mut record).unwrap() {
            NextRecord::Entry => Ok((record.key, record.value)),
            NextRecord::Bad { line, reason } => Err(format!("{line}: {reason}")),
            NextRecord::End => Err("end".to_string()),
        }
    }

    fn pair(key: &[u8], value: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
        Ok((key.to_vec(), value.to_vec()))
    }

    #[test]
    fn lines_get_their_number() {
        let mut records = LineRecords::new(&b"a\n\n\xff\n"[..], false);
        assert_eq!(one(&mut records), pair(b"a", b"1"));
        assert_eq!(one(&mut records), pair(b"", b"2"));
        assert_eq!(one(&mut records), pair(b"\xff", b"3"));
        assert_eq!(one(&mut records), Err("end".to_string()));
    }

    #[test]
    fn oversized_key_is_reported_with_line() {
        let mut input = b"short\n".to_vec();
        input.extend(vec![b'x'; KEY_BYTES_MAX + 1]);
        let mut records = LineRecords::new(&input[..], false);
        assert_eq!(one(&mut records), pair(b"short", b"1"));
        assert!(one(&mut records).unwrap_err().starts_with("2: the line has more than 65536"));
    }

    #[test]
    fn tsv_needs_a_tab() {
        let mut records = TsvRecords::new(&b"a\t1\t2\nnone\n\tempty\n"[..], false);
        assert_eq!(one(&mut records), pair(b"a", b"1\t2"));
        assert_eq!(one(&mut records), Err("2: there is no tab between key and value".to_string()));
        assert_eq!(one(&mut records), pair(b"", b"empty"));
        let mut records = TsvRecords::new(&b"ff00\t61\nfg\t00\n"[..], true);
        assert_eq!(one(&mut records), pair(b"\xff\0", b"a"));
        assert_eq!(one(&mut records), Err("2: the key has `fg`, which is not hex".to_string()));
    }

    #[test]
    fn jsonl_takes_strings_and_hex() {
        let input = b"{\"key\":\"a\\n\",\"value\":\"1\"}\n\n{\"key_hex\":\"ff\",\"value\":\"\"}\n\
            {\"key\":1,\"value\":\"\"}\n{\"key\":\"a\"}\n{\"key\":\n[1]\n\
            {\"key\":\"a\",\"key_hex\":\"61\",\"value\":\"\"}\n";
        let mut records = JsonRecords::new(&input[..]);
        assert_eq!(one(&mut records), pair(b"a\n", b"1"));
        assert_eq!(one(&mut records), pair(b"\xff", b""));
        assert_eq!(one(&mut records), Err("4: the value of \"key\" is not a string".to_string()));
        let neither = "5: the object has neither \"value\" nor \"value_hex\"";
        assert_eq!(one(&mut records), Err(neither.to_string()));
        assert!(
            one(&mut records).unwrap_err().starts_with("6: the line is not valid JSON at byte 7")
        );
        assert!(one(&mut records).unwrap_err().starts_with("7: the object has neither \"key\""));
        assert!(one(&mut records).unwrap_err().starts_with("8: the object has both \"key\""));
        assert_eq!(one(&mut records), Err("end".to_string()));
    }
}
