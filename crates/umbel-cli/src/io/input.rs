//! Input of a command: a file, or standard input.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use crate::errors::{CommandError, CommandResult};

/// Opens the file, or standard input for no name or `-`. Returns the input's name, its reader and,
/// if known, its length.
pub fn open(file: Option<&Path>) -> CommandResult<(String, Box<dyn Read>, Option<u64>)> {
    let path = match file {
        Some(path) if path != Path::new("-") => path,
        _ => return Ok(("standard input".to_string(), Box::new(io::stdin().lock()), None)),
    };
    let failed = |error: io::Error| CommandError::system("read", path, &error);
    let input = File::open(path).map_err(failed)?;
    let metadata = input.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(CommandError::usage(format!(
            "{} is a directory; name a file, or `-` for standard input",
            path.display()
        )));
    }
    let total = metadata.is_file().then_some(metadata.len());
    Ok((path.display().to_string(), Box::new(input), total))
}

/// Counts the bytes read from an input, for the progress bar.
pub struct CountingReader {
    input: Box<dyn Read>,
    consumed: Rc<Cell<u64>>,
}

impl CountingReader {
    /// Creates the reader and returns it with its count of bytes.
    pub fn new(input: Box<dyn Read>) -> (CountingReader, Rc<Cell<u64>>) {
        let consumed = Rc::new(Cell::new(0));
        (CountingReader { input, consumed: Rc::clone(&consumed) }, consumed)
    }
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.consumed.set(self.consumed.get() + read as u64);
        Ok(read)
    }
}

/// Rejects an input file that is also standard output, since reading it would never end.
pub fn refuse_output(file: Option<&Path>) -> CommandResult<()> {
    let Some(path) = file else { return Ok(()) };
    let output = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let output = output.and_then(|output| output.metadata());
    match (std::fs::metadata(path), output) {
        (Ok(input), Ok(output))
            if input.is_file() && (input.dev(), input.ino()) == (output.dev(), output.ino()) =>
        {
            Err(CommandError::usage(format!(
                "{} is both input and output, which would never end; write to another file",
                path.display()
            )))
        }
        _ => Ok(()),
    }
}
