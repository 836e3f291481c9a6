//! The lines of a file or a pipe, many at a time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::errors::{Failure, Outcome};
use crate::input;

/// Lines that are looked at together: enough that asking a filter overlaps its misses.
const BATCH_LINES: usize = 1024;
/// Bytes of lines that are looked at together.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes asked of the operating system at once.
const READ_BYTES: usize = 256 << 10;
/// The longest line that is taken.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Reads lines; a line ends with a line feed, which is not part of it, or with the input.
pub struct Lines {
    input: BufReader<Box<dyn Read>>,
    name: String,
    /// The bytes of the lines that were read last, with their ends.
    bytes: Vec<u8>,
    /// Where each of them ends in there, its line feed included.
    ends: Vec<usize>,
}

impl Lines {
    /// The lines of the file of that name; of standard input for none or `-`.
    pub fn open(file: Option<&Path>) -> Outcome<Lines> {
        let (name, input, _) = input::open(file)?;
        let input = BufReader::with_capacity(READ_BYTES, input);
        Ok(Lines { input, name, bytes: Vec::new(), ends: Vec::new() })
    }

    /// Reads some more lines in place of the last ones; false at the end of the input.
    pub fn read(&mut self) -> Outcome<bool> {
        self.bytes.clear();
        self.ends.clear();
        while self.ends.len() < BATCH_LINES && self.bytes.len() < BATCH_BYTES {
            let before = self.bytes.len();
            let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.bytes);
            match read.map_err(|error| Failure::system("read", Path::new(&self.name), &error))? {
                0 => break,
                read if read as u64 == LINE_BYTES_MAX && self.bytes.last() != Some(&b'\n') => {
                    let name = &self.name;
                    return Err(Failure::usage(format!(
                        "{name} has a line of more than 1 GiB; keys are lines, one each"
                    )));
                }
                read => self.ends.push(before + read),
            }
            // Who writes slowly is answered at once.
            if self.input.buffer().is_empty() {
                break;
            }
        }
        Ok(!self.ends.is_empty())
    }

    /// The lines that were read last, without their ends.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.whole().map(|line| line.strip_suffix(b"\n").unwrap_or(line))
    }

    /// The lines that were read last, as they stood there.
    pub fn whole(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    /// Whether any of the lines that were read last ends with a carriage return.
    pub fn has_carriage_return(&self) -> bool {
        self.iter().any(|line| line.last() == Some(&b'\r'))
    }
}
