//! [`CsvRecords`]: records of a CSV with two columns, quoted as in RFC 4180.

use std::io::{self, Read};

use csv::{ByteRecord, Reader, ReaderBuilder};
use umbel_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::kv::import::csv_parser::{CsvItem, CsvParser};
use crate::kv::import::import_record::{ImportRecord, NextRecord, Records};

/// The records of a CSV.
pub struct CsvRecords<R> {
    reader: Reader<CsvParser<R>>,
    fields: ByteRecord,
    hex: bool,
    header: bool,
}

impl<R: Read> CsvRecords<R> {
    /// Creates the records of `input`; with `header`, the first record is skipped.
    pub fn new(input: R, hex: bool, header: bool) -> CsvRecords<R> {
        let digits = if hex { 2 } else { 1 };
        // Quotes may double every byte, and two of them and a comma stand around a column.
        let record_bytes_max = 2 * digits * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + 6;
        let text = CsvParser::new(input, digits * VALUE_BYTES_MAX, record_bytes_max);
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(64 << 10)
            .from_reader(text);
        CsvRecords { reader, fields: ByteRecord::new(), hex, header }
    }

    /// Reads the columns of the record that was found.
    fn fill(&mut self, record: &mut ImportRecord) -> io::Result<Result<(), String>> {
        self.reader.read_byte_record(&mut self.fields).map_err(to_io)?;
        Ok(match (self.fields.len(), self.fields.get(0), self.fields.get(1)) {
            (2, Some(key), Some(value)) => record.fill(key, value, self.hex),
            (1, ..) => Err("there is 1 column where 2 (key,value) belong".to_string()),
            (columns, ..) => Err(format!("there are {columns} columns where 2 (key,value) belong")),
        })
    }
}

impl<R: Read> Records for CsvRecords<R> {
    fn next(&mut self, record: &mut ImportRecord) -> io::Result<NextRecord> {
        let mut found = self.reader.get_mut().next()?;
        if std::mem::take(&mut self.header) && matches!(found, CsvItem::Record { .. }) {
            found = self.reader.get_mut().next()?;
        }
        match found {
            CsvItem::Record { line } => {
                record.line = line;
                Ok(match self.fill(record)? {
                    Ok(()) => NextRecord::Entry,
                    Err(reason) => NextRecord::Bad { line, reason },
                })
            }
            CsvItem::Broken { line, reason } => Ok(NextRecord::Bad { line, reason }),
            CsvItem::End => Ok(NextRecord::End),
        }
    }

    fn lines(&self) -> u64 {
        self.reader.get_ref().lines()
    }
}

fn to_io(error: csv::Error) -> io::Error {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => io::Error::other(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8], header: bool) -> Vec<String> {
        let mut records = CsvRecords::new(text, false, header);
        let mut record = ImportRecord::default();
        let mut found = Vec::new();
        loop {
            found.push(match records.next(&mut record).unwrap() {
                NextRecord::Entry => format!(
                    "{}: {} = {}",
                    record.line,
                    String::from_utf8_lossy(&record.key),
                    String::from_utf8_lossy(&record.value)
                ),
                NextRecord::Bad { line, reason } => format!("{line}! {reason}"),
                NextRecord::End => return found,
            });
        }
    }

    #[test]
    fn quoted_csv_columns_are_decoded() {
        let found = all(b"\"a,\"\"b\"\"\",\"two\nlines\"\nc,d\r\ne,f", false);
        assert_eq!(found, ["1: a,\"b\" = two\nlines", "3: c = d", "4: e = f"]);
        assert_eq!(all(b"key,value\na,1\n", true), ["2: a = 1"]);
        assert_eq!(all(b"\xef\xbb\xbfa,1\n", false), ["1: a = 1"]);
        assert_eq!(all(b"", true), Vec::<String>::new());
    }

    #[test]
    fn damaged_lines_are_reported_and_others_are_read() {
        let found = all(b"a,1\nb\nc,3\nd,4,5\n\ne,6\n", false);
        assert_eq!(
            found,
            [
                "1: a = 1",
                "2! there is 1 column where 2 (key,value) belong",
                "3: c = 3",
                "4! there are 3 columns where 2 (key,value) belong",
                "6: e = 6",
            ]
        );
        let found = all(b"a,1\nb,\"x\"y\nc,3\n", false);
        let after_quote = "2! there is text after a closing quote";
        assert_eq!(found, ["1: a = 1", after_quote, "3: c = 3"]);
    }

    #[test]
    fn unclosed_quote_is_never_a_multiline_value() {
        let found = all(b"a,1\nb,\"2\nc,3\nd,4\n", false);
        let never = "2! a quote is opened and never closed";
        assert_eq!(found, ["1: a = 1", never, "3: c = 3", "4: d = 4"]);
        let found = all(b"\"k,v\na,1\n", true);
        assert_eq!(found, ["1! a quote is opened and never closed", "2: a = 1"]);
    }

    #[test]
    fn hex_is_decoded() {
        let mut records = CsvRecords::new(&b"\"6b\",ff\n6b,f\n"[..], true, false);
        let mut record = ImportRecord::default();
        assert_eq!(records.next(&mut record).unwrap(), NextRecord::Entry);
        assert_eq!((&record.key[..], &record.value[..]), (&b"k"[..], &b"\xff"[..]));
        let NextRecord::Bad { line: 2, reason } = records.next(&mut record).unwrap() else {
            panic!()
        };
        assert!(reason.starts_with("the value has 1 hex digits"), "{reason}");
    }
}
