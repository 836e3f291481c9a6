//! Filters in files: read whole, written whole or not at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use umbel_filter::{FileError, FilterFile};

use crate::errors::{Failure, Outcome};

/// The bytes of the file of that name.
pub fn read(path: &Path) -> Outcome<Vec<u8>> {
    fs::read(path).map_err(|error| match path.is_dir() {
        true => Failure::usage(format!("{} is a folder; name a filter's file", path.display())),
        false => Failure::system("read", path, &error),
    })
}

/// The filter in `bytes`, which are those of the file of that name.
pub fn parse<'b>(path: &Path, bytes: &'b [u8]) -> Outcome<FilterFile<'b>> {
    let path = path.display();
    FilterFile::parse(bytes).map_err(|error| match error {
        FileError::Foreign => {
            Failure::usage(format!("{path} is not a filter that `umbel filter build` wrote"))
        }
        FileError::Version { .. } | FileError::UnknownHash { .. } | FileError::Hash(_) => {
            Failure::usage(format!("{path}: {error}; a newer umbel may read it"))
        }
        error => Failure::Damaged(format!("{path} is damaged: {error}; build it anew")),
    })
}

/// Writes `bytes` beside the file of that name, syncs them and puts them in its place.
pub fn write(path: &Path, bytes: &[u8]) -> Outcome<()> {
    if path.is_dir() {
        let path = path.display();
        return Err(Failure::usage(format!("{path} is a folder; name a file with --output")));
    }
    // What is no plain file, a pipe or /dev/null, is written as it is.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return fs::write(path, bytes).map_err(|error| Failure::system("write", path, &error));
    }
    let beside = beside(path)?;
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&beside, path)).map_err(|error| {
        let _ = fs::remove_file(&beside);
        Failure::system("write", path, &error)
    })
}

/// A name in the same folder that nobody else uses.
fn beside(path: &Path) -> Outcome<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!(
            "`{}` is no name for a file; name one with --output",
            path.display()
        )));
    };
    let mut beside = name.to_os_string();
    beside.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(beside))
}
