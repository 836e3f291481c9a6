//! [`LineReader`]: reads lines of arbitrary bytes, with a bound on the memory for one line.

use std::io::{self, BufRead, BufReader, Read};

/// Reads lines.
pub struct LineReader<R> {
    input: BufReader<R>,
    limit: usize,
    count: u64,
    /// Whether the remaining bytes of a line that was too long must still be skipped.
    skips_rest: bool,
    /// The line read last, without its line break.
    line: Vec<u8>,
}

/// Outcome of reading a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLine {
    /// The line is complete.
    Whole,
    /// The line has more bytes than the limit; its remaining bytes are skipped.
    TooLong,
}

impl<R: Read> LineReader<R> {
    /// Creates a reader of lines of at most `limit` bytes.
    pub fn new(input: R, limit: usize) -> LineReader<R> {
        let input = BufReader::with_capacity(256 << 10, input);
        LineReader { input, limit, count: 0, skips_rest: false, line: Vec::new() }
    }

    /// Reads the next line; `None` at the end of the input.
    pub fn next(&mut self) -> io::Result<Option<ReadLine>> {
        self.line.clear();
        // Not before the caller wants another line: this one may never end.
        if std::mem::take(&mut self.skips_rest) {
            self.skip_rest()?;
        }
        let bound = self.limit as u64 + 1;
        if self.input.by_ref().take(bound).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.count += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            return Ok(Some(ReadLine::Whole));
        }
        if self.line.len() <= self.limit {
            return Ok(Some(ReadLine::Whole));
        }
        self.skips_rest = true;
        Ok(Some(ReadLine::TooLong))
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        let mut rest = Vec::new();
        loop {
            rest.clear();
            let read = self.input.by_ref().take(64 << 10).read_until(b'\n', &mut rest)?;
            if read == 0 || rest.last() == Some(&b'\n') {
                return Ok(());
            }
        }
    }

    /// The line read last.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// Number of the line read last, from 1; equal to the count of read lines.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8], limit: usize) -> Vec<(ReadLine, Vec<u8>)> {
        let mut lines = LineReader::new(input, limit);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push((line, lines.line().to_vec()));
        }
        assert_eq!(lines.count(), found.len() as u64);
        found
    }

    #[test]
    fn lines_are_bytes_between_line_breaks() {
        let whole = |line: &[u8]| (ReadLine::Whole, line.to_vec());
        assert_eq!(all(b"", 9), []);
        assert_eq!(all(b"a\n\xff\r\n\nend", 9), [b"a", &b"\xff\r"[..], b"", b"end"].map(whole));
        assert_eq!(all(b"abc\n", 3), [whole(b"abc")]);
        assert_eq!(all(b"abc", 3), [whole(b"abc")]);
    }

    #[test]
    fn oversized_line_is_skipped_and_next_line_is_read() {
        let mut input = vec![b'x'; 200_000];
        input.extend_from_slice(b"\nnext\n");
        let found = all(&input, 100);
        assert_eq!(found[0].0, ReadLine::TooLong);
        assert_eq!(found[1], (ReadLine::Whole, b"next".to_vec()));
        assert_eq!(found.len(), 2);
        assert_eq!(all(b"abcd", 3)[0].0, ReadLine::TooLong);
    }

    #[test]
    fn unbounded_line_is_reported_immediately() {
        let mut lines = LineReader::new((&b"a\n"[..]).chain(io::repeat(b'x')), 100);
        assert_eq!(lines.next().unwrap(), Some(ReadLine::Whole));
        assert_eq!(lines.next().unwrap(), Some(ReadLine::TooLong));
        assert_eq!(lines.count(), 2);
    }
}
