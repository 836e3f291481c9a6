//! Watches the bytes of a CSV: where its records begin and whether their quoting is whole.
//!
//! The csv reader is lenient: a quote that is never closed swallows every line behind it and
//! counts as one record; and it counts a line break as part of the record that follows. This watch
//! reads along by the letter of RFC 4180. Where the text is damaged it goes on as the csv reader
//! does. INVARIANT: both see the same records, so that the oldest one noted here and not yet taken
//! is the one that the csv reader yields next.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;

/// A record as the watch saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The line in which it begins, from 1.
    pub line: u64,
    /// The line in which its quoting is broken, and how.
    pub broken: Option<(u64, &'static str)>,
}

/// Records seen and not yet taken, oldest first.
pub type SeenRecords = Rc<RefCell<VecDeque<Seen>>>;

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    RecordStart,
    FieldStart,
    Plain,
    Quoted,
    QuoteInQuoted,
}

/// Passes bytes on and watches them.
pub struct QuoteWatch<R> {
    input: R,
    state: State,
    line: u64,
    line_is_empty: bool,
    /// The line in which the open quoted field began.
    opened: u64,
    field_bytes: usize,
    field_bytes_max: usize,
    /// Bytes of a byte order mark seen at the very start; 3 once it cannot come any more.
    mark: usize,
    seen: SeenRecords,
}

impl<R: Read> QuoteWatch<R> {
    /// Watches `input`. A field of more than `field_bytes_max` bytes is an error of the input: the
    /// csv reader would hold it in memory.
    pub fn new(input: R, field_bytes_max: usize, seen: SeenRecords) -> QuoteWatch<R> {
        QuoteWatch {
            input,
            state: State::RecordStart,
            line: 1,
            line_is_empty: true,
            opened: 1,
            field_bytes: 0,
            field_bytes_max,
            mark: 0,
            seen,
        }
    }

    /// How many lines were read; one without a line break at its end counts.
    pub fn lines(&self) -> u64 {
        self.line - u64::from(self.line_is_empty)
    }

    fn report(&self, line: u64, reason: &'static str) {
        if let Some(record) = self.seen.borrow_mut().back_mut() {
            record.broken.get_or_insert((line, reason));
        }
    }

    fn begin_record(&self) {
        self.seen.borrow_mut().push_back(Seen { line: self.line, broken: None });
    }

    /// Whether the byte belongs to a byte order mark.
    fn is_mark(&mut self, byte: u8) -> bool {
        if self.mark == BYTE_ORDER_MARK.len() {
            return false;
        }
        if byte == BYTE_ORDER_MARK[self.mark] {
            self.mark += 1;
            return true;
        }
        if self.mark > 0 {
            // What began as a mark was text.
            self.begin_record();
            self.state = State::Plain;
        }
        self.mark = BYTE_ORDER_MARK.len();
        false
    }

    fn see(&mut self, byte: u8) {
        if self.is_mark(byte) {
            return;
        }
        self.field_bytes += 1;
        let ends_line = matches!(byte, b'\r' | b'\n');
        if self.state == State::RecordStart && !ends_line {
            self.begin_record();
            self.state = State::FieldStart;
        }
        self.state = match (self.state, byte) {
            (State::Quoted, b'"') => State::QuoteInQuoted,
            (State::Quoted, _) => State::Quoted,
            (_, b'\r' | b'\n') => State::RecordStart,
            (_, b',') => State::FieldStart,
            (State::FieldStart, b'"') => {
                self.opened = self.line;
                State::Quoted
            }
            (State::QuoteInQuoted, b'"') => State::Quoted,
            (State::QuoteInQuoted, _) => {
                self.report(self.line, "there is text behind a closing quote");
                State::Plain
            }
            (State::Plain, b'"') => {
                self.report(self.line, "there is a quote inside a column that does not begin so");
                State::Plain
            }
            (State::RecordStart | State::FieldStart | State::Plain, _) => State::Plain,
        };
        if matches!(self.state, State::RecordStart | State::FieldStart) {
            self.field_bytes = 0;
        }
        self.line_is_empty = byte == b'\n';
        self.line += u64::from(self.line_is_empty);
    }
}

impl<R: Read> Read for QuoteWatch<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        for byte in &buffer[..read] {
            self.see(*byte);
        }
        if read == 0 && self.state == State::Quoted && !buffer.is_empty() {
            self.report(self.opened, "a quote is opened and never closed");
            self.state = State::RecordStart;
        }
        if self.field_bytes > self.field_bytes_max {
            return Err(io::Error::other(format!(
                "the column that begins in line {} has more than {} bytes; is a quote not closed?",
                if self.state == State::Quoted { self.opened } else { self.line },
                self.field_bytes_max
            )));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &[u8]) -> Vec<Seen> {
        let seen = SeenRecords::default();
        let mut watch = QuoteWatch::new(text, 1000, Rc::clone(&seen));
        io::copy(&mut watch, &mut io::sink()).unwrap();
        let lines = text.split_inclusive(|byte| *byte == b'\n').count();
        assert_eq!(watch.lines(), lines as u64);
        seen.take().into()
    }

    fn whole(line: u64) -> Seen {
        Seen { line, broken: None }
    }

    fn broken(line: u64, at: u64, reason: &'static str) -> Seen {
        Seen { line, broken: Some((at, reason)) }
    }

    #[test]
    fn records_begin_where_a_line_has_something() {
        let text = b"a,b\r\n\"a \"\"b\"\"\nc, d\",\"\"\n\n\r\n\"x\",y";
        assert_eq!(seen(text), [whole(1), whole(2), whole(6)]);
        assert_eq!(seen(b"\xef\xbb\xbf\"a\",b\n"), [whole(1)]);
        assert_eq!(seen(b"\xef\n\xbb"), [whole(1), whole(2)]);
        assert_eq!(seen(b""), []);
    }

    #[test]
    fn broken_quoting_names_the_line_where_it_broke() {
        let open = "a quote is opened and never closed";
        assert_eq!(seen(b"a,b\nc,\"d\ne,f\ng,h\n"), [whole(1), broken(2, 2, open)]);
        let behind = "there is text behind a closing quote";
        assert_eq!(seen(b"a,\"b\"c\nd,e\n"), [broken(1, 1, behind), whole(2)]);
        assert_eq!(seen(b"a,\"\nb\" ,c"), [broken(1, 2, behind)]);
        let inside = "there is a quote inside a column that does not begin so";
        assert_eq!(seen(b"\n5\" nails,1\n"), [broken(2, 2, inside)]);
    }

    #[test]
    fn a_runaway_field_is_an_error_and_not_all_of_memory() {
        let text = [b"a,\"b\n".to_vec(), vec![b'x'; 100_000]].concat();
        let mut watch = QuoteWatch::new(&text[..], 1000, SeenRecords::default());
        let error = io::copy(&mut watch, &mut io::sink()).unwrap_err();
        assert!(error.to_string().contains("begins in line 1"), "{error}");
    }
}
