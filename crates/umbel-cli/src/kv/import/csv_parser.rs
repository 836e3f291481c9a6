//! Finds the records in the bytes of a CSV by the letter of RFC 4180, and where to go on behind a
//! damaged one.
//!
//! A quote that is never closed would swallow every line behind it. So the text of a record is
//! kept until the record is whole; where it turns out damaged, reading goes on behind the line in
//! which its quote was opened. INVARIANT: of a damaged record no line is lost but that one and
//! those before it, and no more than a record may have is ever kept in memory. INVARIANT: what is
//! read out of it is the text of one whole record with a line feed, so that the csv reader behind
//! it never sees damage.

use std::io::{self, ErrorKind, Read};

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// What came next.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A whole record.
    Record {
        /// The line in which it begins, from 1.
        line: u64,
    },
    /// A record whose quoting is broken or that is too long.
    Broken {
        /// The line that is left out, from 1.
        line: u64,
        /// Why.
        reason: String,
    },
    /// The input ended.
    End,
}

/// The records of a CSV.
pub struct CsvText<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where the record begins, in the buffer.
    start: usize,
    /// Line feeds in front of it.
    line_feeds: u64,
    /// Whether the byte in front of it ended a line.
    at_line_start: bool,
    /// Whether the rest of a line is to be passed over before the next record.
    passes_over: bool,
    /// Bytes of the record found last that were not read yet, and whether its line feed was not.
    unread: usize,
    ends_unread: bool,
    is_first: bool,
    column_bytes_max: usize,
    record_bytes_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    QuoteInQuoted,
}

/// A record while it is looked through. Positions count from its first byte.
struct Scan {
    state: State,
    at: usize,
    line: u64,
    column_bytes: usize,
    /// The line in which the quote opened last stands, and the position behind that line.
    opened: u64,
    behind_opened: Option<usize>,
}

/// Why a record is none, and where to go on: behind this position, or behind the present line.
struct Break {
    line: u64,
    reason: String,
    resume: Option<usize>,
}

impl<R: Read> CsvText<R> {
    /// Records of `input` with columns of at most `column_bytes_max` bytes, quotes not counted,
    /// in records of at most `record_bytes_max` bytes as they are written.
    pub fn new(input: R, column_bytes_max: usize, record_bytes_max: usize) -> CsvText<R> {
        CsvText {
            input,
            buffer: Vec::new(),
            start: 0,
            line_feeds: 0,
            at_line_start: true,
            passes_over: false,
            unread: 0,
            ends_unread: false,
            is_first: true,
            column_bytes_max,
            record_bytes_max,
        }
    }

    /// How many lines were read; one without a line break at its end counts.
    pub fn lines(&self) -> u64 {
        self.line_feeds + u64::from(!self.at_line_start)
    }

    /// Finds the next record, whose text can then be read.
    pub fn next(&mut self) -> io::Result<Found> {
        let unread = std::mem::take(&mut self.unread);
        self.consume(unread);
        self.ends_unread = false;
        if !self.find_start()? {
            return Ok(Found::End);
        }
        let line = self.line_feeds + 1;
        let mut scan = Scan::at_line(line);
        let broken = loop {
            let byte = self.byte(scan.at)?;
            if scan.is_whole(byte) {
                break None;
            }
            let Some(byte) = byte else { break Some(scan.never_closed()) };
            let step = scan.see(byte);
            let too_long = scan.is_too_long(self.column_bytes_max, self.record_bytes_max);
            if let Some(broken) = step.or(too_long) {
                break Some(broken);
            }
        };
        let Some(Break { line, reason, resume }) = broken else {
            (self.unread, self.ends_unread) = (scan.at, true);
            return Ok(Found::Record { line });
        };
        self.passes_over = resume.is_none();
        self.consume(resume.unwrap_or(scan.at));
        Ok(Found::Broken { line, reason })
    }

    /// Passes over what is between records; whether there is another one.
    fn find_start(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.is_first) && self.starts_with_mark()? {
            self.consume(BYTE_ORDER_MARK.len());
            self.at_line_start = true;
        }
        while let Some(byte) = self.byte(0)? {
            let ends_line = matches!(byte, b'\r' | b'\n');
            if !ends_line && !self.passes_over {
                return Ok(true);
            }
            self.passes_over &= !ends_line;
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

    /// The byte at a position of the record; `None` at the end of the input.
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

    /// Is done with so many bytes.
    fn consume(&mut self, count: usize) {
        let bytes = &self.buffer[self.start..self.start + count];
        self.line_feeds += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.at_line_start = bytes.last().map_or(self.at_line_start, |byte| *byte == b'\n');
        self.start += count;
    }
}

impl<R: Read> Read for CsvText<R> {
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

impl Scan {
    fn at_line(line: u64) -> Scan {
        let state = State::FieldStart;
        let (column_bytes, opened, behind_opened) = (0, line, None);
        Scan { state, at: 0, line, column_bytes, opened, behind_opened }
    }

    /// Whether the record ends in front of this byte, or of the end of the input.
    fn is_whole(&self, byte: Option<u8>) -> bool {
        self.state != State::Quoted && matches!(byte, None | Some(b'\r' | b'\n'))
    }

    /// Takes the next byte. REQUIRES: the record is not whole in front of it.
    fn see(&mut self, byte: u8) -> Option<Break> {
        self.at += 1;
        self.column_bytes += 1;
        self.state = match (self.state, byte) {
            (State::Quoted, b'"') => State::QuoteInQuoted,
            (State::Quoted, _) => {
                if matches!(byte, b'\r' | b'\n') {
                    self.behind_opened.get_or_insert(self.at);
                }
                State::Quoted
            }
            (State::QuoteInQuoted, b'"') => {
                // Two quotes are one byte.
                self.column_bytes -= 1;
                State::Quoted
            }
            (_, b',') => {
                self.column_bytes = 0;
                State::FieldStart
            }
            (State::FieldStart, b'"') => {
                (self.opened, self.behind_opened, self.column_bytes) = (self.line, None, 0);
                State::Quoted
            }
            (State::QuoteInQuoted, _) => return Some(self.text_behind()),
            (State::Plain, b'"') => {
                return Some(
                    self.broken("there is a quote inside a column that does not begin so"),
                );
            }
            (State::FieldStart | State::Plain, _) => State::Plain,
        };
        self.line += u64::from(byte == b'\n');
        None
    }

    /// Damage in the present line.
    fn broken(&self, reason: &str) -> Break {
        Break { line: self.line, reason: reason.to_string(), resume: None }
    }

    fn text_behind(&self) -> Break {
        if self.behind_opened.is_none() {
            return self.broken("there is text behind a closing quote");
        }
        let reason =
            format!("a quote is opened that closes in line {} with text behind it", self.line);
        Break { line: self.opened, reason, resume: self.behind_opened }
    }

    fn never_closed(&self) -> Break {
        let reason = "a quote is opened and never closed".to_string();
        Break { line: self.opened, reason, resume: self.behind_opened }
    }

    fn is_too_long(&self, column_bytes_max: usize, record_bytes_max: usize) -> Option<Break> {
        // The closing quote is counted until it is known to be one.
        let column_bytes = self.column_bytes - usize::from(self.state == State::QuoteInQuoted);
        if column_bytes <= column_bytes_max && self.at <= record_bytes_max {
            return None;
        }
        if self.state != State::Quoted {
            let limit =
                if column_bytes > column_bytes_max { column_bytes_max } else { record_bytes_max };
            return Some(self.broken(&format!("it has more than {limit} bytes")));
        }
        let reason = format!(
            "a quote is opened, but in the {column_bytes_max} bytes that a column may have it is \
             not closed"
        );
        Some(Break { line: self.opened, reason, resume: self.behind_opened })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a byte at a time, so that every position is once the end of what is buffered.
    struct Slowly<R>(R);

    impl<R: Read> Read for Slowly<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }

    fn found(text: &[u8]) -> Vec<String> {
        let mut csv = CsvText::new(Slowly(text), 100, 400);
        let mut all = Vec::new();
        loop {
            all.push(match csv.next().unwrap() {
                Found::Record { line } => {
                    let mut record = Vec::new();
                    csv.read_to_end(&mut record).unwrap();
                    assert_eq!(record.pop(), Some(b'\n'));
                    format!("{line}: {}", String::from_utf8_lossy(&record))
                }
                Found::Broken { line, reason } => format!("{line}! {reason}"),
                Found::End => break,
            });
        }
        assert_eq!(csv.lines(), text.split_inclusive(|byte| *byte == b'\n').count() as u64);
        all
    }

    #[test]
    fn records_begin_where_a_line_has_something() {
        let text = b"a,b\r\n\"a \"\"b\"\"\nc, d\",\"\"\n\n\r\n\"x\",y";
        assert_eq!(found(text), ["1: a,b", "2: \"a \"\"b\"\"\nc, d\",\"\"", "6: \"x\",y"]);
        assert_eq!(found(b"\xef\xbb\xbf\"a\",b,c\n"), ["1: \"a\",b,c"]);
        assert_eq!(found(b"\xef\xbb\n,"), ["1: \u{fffd}", "2: ,"]);
        assert_eq!(found(b"\"\"\"\",\"\"\"a\"\"\""), ["1: \"\"\"\",\"\"\"a\"\"\""]);
        assert_eq!(found(b""), Vec::<String>::new());
    }

    #[test]
    fn one_open_quote_costs_its_own_line() {
        let open = "2! a quote is opened and never closed";
        let expected = ["1: a,b", open, "3: e,f", "4: g,h"];
        assert_eq!(found(b"a,b\nc,\"d\ne,f\ng,h\n"), expected);
        assert_eq!(found(b"a,b\r\nc,\"d\r\ne,f\r\ng,h"), expected);
        assert_eq!(found(b"a,b\nc,\"d")[1..], [open]);
        let closes = "1! a quote is opened that closes in line 2 with text behind it";
        assert_eq!(found(b"a,\"1\nb,\"2\"\nc,3\n"), [closes, "2: b,\"2\"", "3: c,3"]);
        // The first column is whole, over two lines; the second one is open.
        assert_eq!(found(b"\"a\nb\",\"1\nc,d\n"), [open, "3: c,d"]);
    }

    #[test]
    fn broken_quoting_in_a_line_costs_that_line() {
        let behind = "1! there is text behind a closing quote";
        assert_eq!(found(b"a,\"b\"c,\"x\nd,e\n"), [behind, "2: d,e"]);
        let inside = "2! there is a quote inside a column that does not begin so";
        assert_eq!(found(b"\n5\" nails,1\n"), [inside]);
    }

    #[test]
    fn what_is_too_long_is_passed_over() {
        let long = "x".repeat(101);
        let said = "1! it has more than 100 bytes";
        assert_eq!(found(format!("{long}x,1\na,b").as_bytes()), [said, "2: a,b"]);
        let said = "1! it has more than 400 bytes";
        let many = "a,".repeat(500);
        assert_eq!(found(format!("{many}\na,b").as_bytes()), [said, "2: a,b"]);
        let lines = "a,b\n".repeat(30);
        let all = found(format!("k,\"v\n{lines}").as_bytes());
        let said = "1! a quote is opened, but in the 100 bytes that a column may have it is not";
        assert!(all[0].starts_with(said), "{all:?}");
        assert_eq!((all.len(), all[30].as_str()), (31, "31: a,b"));
        let fits = format!("\"{}\",1", "x\"\"".repeat(50));
        assert_eq!(found(fits.as_bytes()), [format!("1: {fits}")]);
    }

    #[test]
    fn an_endless_column_is_named_and_not_all_of_memory() {
        for begin in [&b"a,1\nb,\"2"[..], b"a,1\nb,2"] {
            let mut csv = CsvText::new(begin.chain(io::repeat(b'x')), 1000, 4000);
            assert_eq!(csv.next().unwrap(), Found::Record { line: 1 });
            let broken = csv.next().unwrap();
            assert!(matches!(broken, Found::Broken { line: 2, .. }), "{broken:?}");
            assert!(csv.buffer.len() <= 2 * READ_BYTES);
        }
    }
}
