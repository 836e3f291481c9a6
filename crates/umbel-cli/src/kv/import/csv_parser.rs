//! Finds the records in the bytes of a CSV, strictly by RFC 4180, and the place to resume after a
//! damaged record.
//!
//! The crate `csv` decodes the columns of a record, but cannot replace this file. The crate accepts
//! text after a closing quote, and takes a quote that is never closed as a value up to the input's
//! end. `docs/reference/cli.md` promises that either error costs only the line in which the quote
//! was opened.
//!
//! A quote that is never closed would make every later line part of its value. So the text of a
//! record is buffered until the record is complete. After a damaged record, parsing resumes after
//! the line in which its quote was opened. INVARIANT: a damaged record loses only its lines up to
//! the one with the opened quote. INVARIANT: memory holds at most the maximum length of a record.
//! INVARIANT: the crate `csv` reads from the parser only the text of whole records, each with a
//! line feed, and never a damaged one.

use std::io::{self, ErrorKind, Read};

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Next item of a CSV.
#[derive(Debug, PartialEq, Eq)]
pub enum CsvItem {
    /// A whole record.
    Record {
        /// Number of the line in which the record begins, from 1.
        line: u64,
    },
    /// A record that is too long or has invalid quotes.
    Broken {
        /// Number of the skipped line, from 1.
        line: u64,
        /// Reason why the record is invalid.
        reason: String,
    },
    /// The input ended.
    End,
}

/// Finds the records of a CSV.
pub struct CsvParser<R> {
    input: R,
    buffer: Vec<u8>,
    /// Start of the record in the buffer.
    start: usize,
    /// Number of line feeds before the record.
    line_feeds: u64,
    /// Whether the byte before the record ended a line.
    at_line_start: bool,
    /// Whether the remaining bytes of a line must be skipped before the next record.
    skips_rest: bool,
    /// Number of unread bytes of the record found last, and whether its line feed is still unread.
    unread: usize,
    ends_unread: bool,
    is_first: bool,
    column_bytes_max: usize,
    record_bytes_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    FieldStart,
    Plain,
    Quoted,
    QuoteInQuoted,
}

/// State of the scan of a record. Positions count from the record's first byte.
struct RecordScan {
    state: ParserState,
    at: usize,
    line: u64,
    column_bytes: usize,
    /// Line with the last opened quote, and the position after that line.
    opened: u64,
    after_opened: Option<usize>,
}

/// Reason why a record is invalid, and the position at which to resume.
struct RecordError {
    line: u64,
    reason: String,
    resume: Option<usize>,
}

impl<R: Read> CsvParser<R> {
    /// Creates a parser of `input`. A column has at most `column_bytes_max` bytes without quotes, a
    /// record at most `record_bytes_max` bytes in the input.
    pub fn new(input: R, column_bytes_max: usize, record_bytes_max: usize) -> CsvParser<R> {
        CsvParser {
            input,
            buffer: Vec::new(),
            start: 0,
            line_feeds: 0,
            at_line_start: true,
            skips_rest: false,
            unread: 0,
            ends_unread: false,
            is_first: true,
            column_bytes_max,
            record_bytes_max,
        }
    }

    /// Number of lines that were read, including a last line without a line break.
    pub fn lines(&self) -> u64 {
        self.line_feeds + u64::from(!self.at_line_start)
    }

    /// Finds the next record, whose text can then be read.
    pub fn next(&mut self) -> io::Result<CsvItem> {
        let unread = std::mem::take(&mut self.unread);
        self.consume(unread);
        self.ends_unread = false;
        if !self.skip_to_record()? {
            return Ok(CsvItem::End);
        }
        let line = self.line_feeds + 1;
        let mut scan = RecordScan::at_line(line);
        let broken = loop {
            let byte = self.byte(scan.at)?;
            if scan.is_whole(byte) {
                break None;
            }
            let Some(byte) = byte else { break Some(scan.unclosed_quote()) };
            let step = scan.push_byte(byte);
            let too_long = scan.is_too_long(self.column_bytes_max, self.record_bytes_max);
            if let Some(broken) = step.or(too_long) {
                break Some(broken);
            }
        };
        let Some(RecordError { line, reason, resume }) = broken else {
            (self.unread, self.ends_unread) = (scan.at, true);
            return Ok(CsvItem::Record { line });
        };
        self.skips_rest = resume.is_none();
        self.consume(resume.unwrap_or(scan.at));
        Ok(CsvItem::Broken { line, reason })
    }

    /// Skips the bytes between records. Returns whether another record follows.
    fn skip_to_record(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.is_first) && self.starts_with_mark()? {
            self.consume(BYTE_ORDER_MARK.len());
            self.at_line_start = true;
        }
        while let Some(byte) = self.byte(0)? {
            let ends_line = matches!(byte, b'\r' | b'\n');
            if !ends_line && !self.skips_rest {
                return Ok(true);
            }
            self.skips_rest &= !ends_line;
            self.consume(1);
        }
        Ok(false)
    }

    fn starts_with_mark(&mut self) -> io::Result<bool> {
        for (at, byte) in BYTE_ORDER_MARK.into_iter().enumerate() {
            if self.byte(at)? != Some(byte) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the byte at a position of the record; `None` at the end of the input.
    #[inline]
    fn byte(&mut self, at: usize) -> io::Result<Option<u8>> {
        if let Some(byte) = self.buffer.get(self.start + at) {
            return Ok(Some(*byte));
        }
        self.read_more(at)
    }

    #[cold]
    fn read_more(&mut self, at: usize) -> io::Result<Option<u8>> {
        self.buffer.drain(..self.start);
        self.start = 0;
        while self.buffer.len() <= at {
            let len = self.buffer.len();
            self.buffer.resize(len + READ_BYTES, 0);
            let read = self.input.read(&mut self.buffer[len..]);
            self.buffer.truncate(len + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(None),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(self.buffer.get(at).copied())
    }

    /// Consumes `count` bytes.
    fn consume(&mut self, count: usize) {
        let bytes = &self.buffer[self.start..self.start + count];
        self.line_feeds += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.at_line_start = bytes.last().map_or(self.at_line_start, |byte| *byte == b'\n');
        self.start += count;
    }
}

impl<R: Read> Read for CsvParser<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = self.unread.min(target.len());
        target[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.consume(count);
        self.unread -= count;
        if let (true, 0, Some(byte)) = (self.ends_unread, self.unread, target.get_mut(count)) {
            *byte = b'\n';
            self.ends_unread = false;
            return Ok(count + 1);
        }
        Ok(count)
    }
}

impl RecordScan {
    fn at_line(line: u64) -> RecordScan {
        let state = ParserState::FieldStart;
        let (column_bytes, opened, behind_opened) = (0, line, None);
        RecordScan { state, at: 0, line, column_bytes, opened, after_opened: behind_opened }
    }

    /// Whether the record ends before this byte, or before the end of the input.
    fn is_whole(&self, byte: Option<u8>) -> bool {
        self.state != ParserState::Quoted && matches!(byte, None | Some(b'\r' | b'\n'))
    }

    /// Processes the next byte. REQUIRES: the record does not end before this byte.
    fn push_byte(&mut self, byte: u8) -> Option<RecordError> {
        self.at += 1;
        self.column_bytes += 1;
        self.state = match (self.state, byte) {
            (ParserState::Quoted, b'"') => ParserState::QuoteInQuoted,
            (ParserState::Quoted, _) => {
                if matches!(byte, b'\r' | b'\n') {
                    self.after_opened.get_or_insert(self.at);
                }
                ParserState::Quoted
            }
            (ParserState::QuoteInQuoted, b'"') => {
                // Two quotes are one byte.
                self.column_bytes -= 1;
                ParserState::Quoted
            }
            (_, b',') => {
                self.column_bytes = 0;
                ParserState::FieldStart
            }
            (ParserState::FieldStart, b'"') => {
                (self.opened, self.after_opened, self.column_bytes) = (self.line, None, 0);
                ParserState::Quoted
            }
            (ParserState::QuoteInQuoted, _) => return Some(self.text_after_quote()),
            (ParserState::Plain, b'"') => {
                return Some(self.broken("there is a quote inside an unquoted column"));
            }
            (ParserState::FieldStart | ParserState::Plain, _) => ParserState::Plain,
        };
        self.line += u64::from(byte == b'\n');
        None
    }

    /// Returns the error for damage in the present line.
    fn broken(&self, reason: &str) -> RecordError {
        RecordError { line: self.line, reason: reason.to_string(), resume: None }
    }

    fn text_after_quote(&self) -> RecordError {
        if self.after_opened.is_none() {
            return self.broken("there is text after a closing quote");
        }
        let reason = format!("a quoted column ends in line {} with text after it", self.line);
        RecordError { line: self.opened, reason, resume: self.after_opened }
    }

    fn unclosed_quote(&self) -> RecordError {
        let reason = "a quote is opened and never closed".to_string();
        RecordError { line: self.opened, reason, resume: self.after_opened }
    }

    fn is_too_long(&self, column_bytes_max: usize, record_bytes_max: usize) -> Option<RecordError> {
        // The closing quote is counted until it is known to be one.
        let column_bytes =
            self.column_bytes - usize::from(self.state == ParserState::QuoteInQuoted);
        if column_bytes <= column_bytes_max && self.at <= record_bytes_max {
            return None;
        }
        if self.state != ParserState::Quoted {
            let limit =
                if column_bytes > column_bytes_max { column_bytes_max } else { record_bytes_max };
            return Some(self.broken(&format!("the line or a column has more than {limit} bytes")));
        }
        let reason = format!(
            "a quote is opened, but not closed within {column_bytes_max} bytes, the limit of a \
             column"
        );
        Some(RecordError { line: self.opened, reason, resume: self.after_opened })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reader that returns one byte at a time, so that every position is once the end of the
    /// buffered bytes.
    struct Slowly<R>(R);

    impl<R: Read> Read for Slowly<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }

    fn found(text: &[u8]) -> Vec<String> {
        let mut csv = CsvParser::new(Slowly(text), 100, 400);
        let mut all = Vec::new();
        loop {
            all.push(match csv.next().unwrap() {
                CsvItem::Record { line } => {
                    let mut record = Vec::new();
                    csv.read_to_end(&mut record).unwrap();
                    assert_eq!(record.pop(), Some(b'\n'));
                    format!("{line}: {}", String::from_utf8_lossy(&record))
                }
                CsvItem::Broken { line, reason } => format!("{line}! {reason}"),
                CsvItem::End => break,
            });
        }
        assert_eq!(csv.lines(), text.split_inclusive(|byte| *byte == b'\n').count() as u64);
        all
    }

    #[test]
    fn csv_records_skip_empty_lines() {
        let text = b"a,b\r\n\"a \"\"b\"\"\nc, d\",\"\"\n\n\r\n\"x\",y";
        assert_eq!(found(text), ["1: a,b", "2: \"a \"\"b\"\"\nc, d\",\"\"", "6: \"x\",y"]);
        assert_eq!(found(b"\xef\xbb\xbf\"a\",b,c\n"), ["1: \"a\",b,c"]);
        assert_eq!(found(b"\xef\xbb\n,"), ["1: \u{fffd}", "2: ,"]);
        assert_eq!(found(b"\"\"\"\",\"\"\"a\"\"\""), ["1: \"\"\"\",\"\"\"a\"\"\""]);
        assert_eq!(found(b""), Vec::<String>::new());
    }

    #[test]
    fn unclosed_quote_rejects_only_its_line() {
        let open = "2! a quote is opened and never closed";
        let expected = ["1: a,b", open, "3: e,f", "4: g,h"];
        assert_eq!(found(b"a,b\nc,\"d\ne,f\ng,h\n"), expected);
        assert_eq!(found(b"a,b\r\nc,\"d\r\ne,f\r\ng,h"), expected);
        assert_eq!(found(b"a,b\nc,\"d")[1..], [open]);
        let closes = "1! a quoted column ends in line 2 with text after it";
        assert_eq!(found(b"a,\"1\nb,\"2\"\nc,3\n"), [closes, "2: b,\"2\"", "3: c,3"]);
        // The first column is whole, over two lines; the second one is open.
        assert_eq!(found(b"\"a\nb\",\"1\nc,d\n"), [open, "3: c,d"]);
    }

    #[test]
    fn invalid_quoting_rejects_only_its_line() {
        let after_quote = "1! there is text after a closing quote";
        assert_eq!(found(b"a,\"b\"c,\"x\nd,e\n"), [after_quote, "2: d,e"]);
        let inside = "2! there is a quote inside an unquoted column";
        assert_eq!(found(b"\n5\" nails,1\n"), [inside]);
    }

    #[test]
    fn oversized_column_is_skipped() {
        let long = "x".repeat(101);
        let reason = "1! the line or a column has more than 100 bytes";
        assert_eq!(found(format!("{long}x,1\na,b").as_bytes()), [reason, "2: a,b"]);
        let reason = "1! the line or a column has more than 400 bytes";
        let many = "a,".repeat(500);
        assert_eq!(found(format!("{many}\na,b").as_bytes()), [reason, "2: a,b"]);
        let lines = "a,b\n".repeat(30);
        let all = found(format!("k,\"v\n{lines}").as_bytes());
        let reason = "1! a quote is opened, but not closed within 100 bytes, the limit of a";
        assert!(all[0].starts_with(reason), "{all:?}");
        assert_eq!((all.len(), all[30].as_str()), (31, "31: a,b"));
        let fits = format!("\"{}\",1", "x\"\"".repeat(50));
        assert_eq!(found(fits.as_bytes()), [format!("1: {fits}")]);
    }

    #[test]
    fn unbounded_column_is_reported_in_bounded_memory() {
        for begin in [&b"a,1\nb,\"2"[..], b"a,1\nb,2"] {
            let mut csv = CsvParser::new(begin.chain(io::repeat(b'x')), 1000, 4000);
            assert_eq!(csv.next().unwrap(), CsvItem::Record { line: 1 });
            let broken = csv.next().unwrap();
            assert!(matches!(broken, CsvItem::Broken { line: 2, .. }), "{broken:?}");
            assert!(csv.buffer.len() <= 2 * READ_BYTES);
        }
    }
}
