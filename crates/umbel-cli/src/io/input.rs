//! What a command reads: a file, or standard input.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use crate::errors::{Failure, Outcome};

/// The file of that name, or standard input for none or `-`: what it is called, its bytes, and how
/// many there are where that is known.
pub fn open(file: Option<&Path>) -> Outcome<(String, Box<dyn Read>, Option<u64>)> {
    let path = match file {
        Some(path) if path != Path::new("-") => path,
        _ => return Ok(("standard input".to_string(), Box::new(io::stdin().lock()), None)),
    };
    let failed = |error: io::Error| Failure::system("read", path, &error);
    let input = File::open(path).map_err(failed)?;
    let metadata = input.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Failure::usage(format!(
            "{} is a folder; name a file, or `-` for standard input",
            path.display()
        )));
    }
    let total = metadata.is_file().then_some(metadata.len());
    Ok((path.display().to_string(), Box::new(input), total))
}

/// Counts the bytes read from an input, for who shows how far it is.
pub struct Counting {
    input: Box<dyn Read>,
    consumed: Rc<Cell<u64>>,
}

impl Counting {
    /// The input, and how many bytes were read of it.
    pub fn new(input: Box<dyn Read>) -> (Counting, Rc<Cell<u64>>) {
        let consumed = Rc::new(Cell::new(0));
        (Counting { input, consumed: Rc::clone(&consumed) }, consumed)
    }
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.consumed.set(self.consumed.get() + read as u64);
        Ok(read)
    }
}

/// Refuses a file that the output is appended to: there would be no end of it.
pub fn refuse_output(file: Option<&Path>) -> Outcome<()> {
    let Some(path) = file else { return Ok(()) };
    let output = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let output = output.and_then(|output| output.metadata());
    match (std::fs::metadata(path), output) {
        (Ok(input), Ok(output))
            if input.is_file() && (input.dev(), input.ino()) == (output.dev(), output.ino()) =>
        {
            Err(Failure::usage(format!(
                "{} is the output as well and would never end; write to another file",
                path.display()
            )))
        }
        _ => Ok(()),
    }
}
