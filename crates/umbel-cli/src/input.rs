//! What a command reads: a file, or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
