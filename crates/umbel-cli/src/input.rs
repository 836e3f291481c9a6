//! What a command reads: a file, or standard input.

use std::fs::File;
use std::io::{self, Read};
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
