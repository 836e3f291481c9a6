//! Two columns, quoted as RFC 4180 says.

use std::io::{self, Read};

use csv::{ByteRecord, Reader, ReaderBuilder};
use umbel_base::limits::VALUE_BYTES_MAX;

use super::quotes::{QuoteWatch, Seen, SeenRecords};
use super::record::{Record, Records, Step};

/// The records of a CSV.
pub struct CsvRecords<R> {
    reader: Reader<QuoteWatch<R>>,
    seen: SeenRecords,
    fields: ByteRecord,
    hex: bool,
    header: bool,
}

impl<R: Read> CsvRecords<R> {
    /// Records of `input`; with `header` the first one is passed over.
    pub fn new(input: R, hex: bool, header: bool) -> CsvRecords<R> {
        let seen = SeenRecords::default();
        let bytes_max = if hex { 2 * VALUE_BYTES_MAX } else { VALUE_BYTES_MAX };
        // Quotes may double every byte, and two of them stand around it.
        let watch = QuoteWatch::new(input, 2 * bytes_max + 2, seen.clone());
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(64 << 10)
            .from_reader(watch);
        CsvRecords { reader, seen, fields: ByteRecord::new(), hex, header }
    }

    /// Reads the next record's columns; `None` at the end.
    fn read(&mut self) -> io::Result<Option<Seen>> {
        if !self.reader.read_byte_record(&mut self.fields).map_err(to_io)? {
            return Ok(None);
        }
        let seen = self.seen.borrow_mut().pop_front();
        Ok(Some(seen.unwrap_or(Seen { line: self.lines(), broken: None })))
    }
}

impl<R: Read> Records for CsvRecords<R> {
    fn next(&mut self, record: &mut Record) -> io::Result<Step> {
        let mut seen = self.read()?;
        if self.header && seen.as_ref().is_some_and(|seen| seen.broken.is_none()) {
            seen = self.read()?;
        }
        self.header = false;
        let Some(Seen { line, broken }) = seen else { return Ok(Step::End) };
        if let Some((line, reason)) = broken {
            return Ok(Step::Bad { line, reason: reason.to_string() });
        }
        record.line = line;
        let filled = match (self.fields.len(), self.fields.get(0), self.fields.get(1)) {
            (2, Some(key), Some(value)) => record.fill(key, value, self.hex),
            (1, ..) => Err("there is 1 column where 2 (key,value) belong".to_string()),
            (columns, ..) => Err(format!("there are {columns} columns where 2 (key,value) belong")),
        };
        Ok(match filled {
            Ok(()) => Step::Entry,
            Err(reason) => Step::Bad { line, reason },
        })
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
        let mut record = Record::default();
        let mut found = Vec::new();
        loop {
            found.push(match records.next(&mut record).unwrap() {
                Step::Entry => format!(
                    "{}: {} = {}",
                    record.line,
                    String::from_utf8_lossy(&record.key),
                    String::from_utf8_lossy(&record.value)
                ),
                Step::Bad { line, reason } => format!("{line}! {reason}"),
                Step::End => return found,
            });
        }
    }

    #[test]
    fn quoted_columns_mean_what_their_writer_meant() {
        let found = all(b"\"a,\"\"b\"\"\",\"two\nlines\"\nc,d\r\ne,f", false);
        assert_eq!(found, ["1: a,\"b\" = two\nlines", "3: c = d", "4: e = f"]);
        assert_eq!(all(b"key,value\na,1\n", true), ["2: a = 1"]);
        assert_eq!(all(b"\xef\xbb\xbfa,1\n", false), ["1: a = 1"]);
        assert_eq!(all(b"", true), Vec::<String>::new());
    }

    #[test]
    fn damaged_lines_are_named_and_the_others_are_read() {
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
        let behind = "2! there is text behind a closing quote";
        assert_eq!(found, ["1: a = 1", behind, "3: c = 3"]);
    }

    #[test]
    fn an_open_quote_is_never_a_value_of_many_lines() {
        let found = all(b"a,1\nb,\"2\nc,3\nd,4\n", false);
        assert_eq!(found, ["1: a = 1", "2! a quote is opened and never closed"]);
        let found = all(b"a,1\nb,\"2\nc\"d", false);
        assert_eq!(found, ["1: a = 1", "3! there is text behind a closing quote"]);
    }
}
