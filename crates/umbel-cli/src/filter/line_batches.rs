//! [`LineBatches`]: reads the lines of a file or a pipe, many at a time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::errors::{CommandError, CommandResult};
use crate::io::input;

/// Number of lines of a batch, enough that the cache misses of their probes overlap.
const BATCH_LINES: usize = 1024;
/// Bytes of a batch.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Maximum length of a line.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Reads lines in batches. A line ends with a line feed, which is not part of the line, or at the
/// end of the input.
pub struct LineBatches {
    input: BufReader<Box<dyn Read>>,
    name: String,
    /// Bytes of the current batch of lines, with their line feeds.
    bytes: Vec<u8>,
    /// End offset of each line in `bytes`, including its line feed.
    ends: Vec<usize>,
}

impl LineBatches {
    /// Opens the file with this name, or standard input for no name or `-`.
    pub fn open(file: Option<&Path>) -> CommandResult<LineBatches> {
        let (name, input, _) = input::open(file)?;
        let input = BufReader::with_capacity(READ_BYTES, input);
        Ok(LineBatches { input, name, bytes: Vec::new(), ends: Vec::new() })
    }

    /// Replaces the current batch by the next lines; returns `false` at the end of the input.
    pub fn read(&mut self) -> CommandResult<bool> {
        self.bytes.clear();
        self.ends.clear();
        while self.ends.len() < BATCH_LINES && self.bytes.len() < BATCH_BYTES {
            let before = self.bytes.len();
            let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.bytes);
            match read
                .map_err(|error| CommandError::system("read", Path::new(&self.name), &error))?
            {
                0 => break,
                read if read as u64 == LINE_BYTES_MAX && self.bytes.last() != Some(&b'\n') => {
                    let name = &self.name;
                    return Err(CommandError::usage(format!(
                        "{name} has a line of more than 1 GiB, the limit of a key; write one key \
                         per line"
                    )));
                }
                read => self.ends.push(before + read),
            }
            // A slow writer is answered at once.
            if self.input.buffer().is_empty() {
                break;
            }
        }
        Ok(!self.ends.is_empty())
    }

    /// Returns the lines of the current batch, without their line feeds.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.raw().map(|line| line.strip_suffix(b"\n").unwrap_or(line))
    }

    /// Returns the lines of the current batch, with their line feeds.
    pub fn raw(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    /// Whether any line of the current batch ends with a carriage return.
    pub fn has_carriage_return(&self) -> bool {
        self.iter().any(|line| line.last() == Some(&b'\r'))
    }
}
