//! Filters in files: read whole, written whole or not at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use umbel_filter::{
    FileError, Filter, FilterFile, FilterView, HashKind, KeyHasher, ParquetError, from_parquet,
};

use crate::errors::{Failure, Outcome};

/// A filter that was read, and what asks it.
pub struct Loaded {
    /// What keys are hashed with.
    pub hasher: KeyHasher,
    /// The seed of that; zeros where it has none.
    pub seed: [u8; 16],
    /// Whether the file is as Apache Parquet writes it.
    pub is_parquet: bool,
    /// How long the file is.
    pub file_bytes: u64,
    /// `None` for the filter of no keys.
    filter: Option<Filter>,
}

impl Loaded {
    /// The filter, to be asked with hashes that the hasher makes.
    pub fn view(&self) -> FilterView<'_> {
        self.filter.as_ref().map_or(FilterView::MAYBE, Filter::view)
    }

    /// What is behind the filter's header.
    pub fn payload(&self) -> &[u8] {
        let bytes = self.filter.as_ref().map(Filter::bytes).unwrap_or_default();
        bytes.get(umbel_filter::HEADER_BYTES..).unwrap_or_default()
    }
}

/// Reads the filter in the file of that name.
pub fn read(path: &Path) -> Outcome<Loaded> {
    let bytes = fs::read(path).map_err(|error| match path.is_dir() {
        true => Failure::usage(format!("{} is a folder; name a filter's file", path.display())),
        false => Failure::system("read", path, &error),
    })?;
    let name = path.display();
    let damaged = |reason: &dyn std::fmt::Display| {
        Failure::Damaged(format!("{name} is damaged: {reason}; build it anew"))
    };
    let file_bytes = bytes.len() as u64;
    match FilterFile::parse(&bytes) {
        Ok(file) => {
            let filter = match file.filter_bytes() {
                [] => None,
                bytes => Some(Filter::decode(bytes).map_err(|error| damaged(&error))?),
            };
            let (hasher, seed) = (*file.hasher(), file.seed());
            Ok(Loaded { hasher, seed, is_parquet: false, file_bytes, filter })
        }
        Err(FileError::Foreign) => parquet(path, &bytes),
        Err(
            error
            @ (FileError::Version { .. } | FileError::UnknownHash { .. } | FileError::Hash(_)),
        ) => Err(Failure::usage(format!("{name}: {error}; a newer umbel may read it"))),
        Err(error) => Err(damaged(&error)),
    }
}

/// A filter as Parquet writes it. It has no checksum: what has its header and its length is one.
fn parquet(path: &Path, bytes: &[u8]) -> Outcome<Loaded> {
    let name = path.display();
    let foreign = || {
        Failure::usage(format!(
            "{name} is neither a filter that `umbel filter build` wrote nor one of Apache Parquet"
        ))
    };
    let (encoded, length) = from_parquet(bytes).map_err(|error| match error {
        ParquetError::Unknown => {
            Failure::usage(format!("{name}: {error}; a newer umbel may read it"))
        }
        _ => foreign(),
    })?;
    if length != bytes.len() {
        return Err(foreign());
    }
    let seed = [0; 16];
    let hasher =
        KeyHasher::new(HashKind::Xxh64, seed).map_err(|error| Failure::usage(error.to_string()))?;
    let filter = Filter::decode(&encoded).map_err(|_| foreign())?;
    let file_bytes = bytes.len() as u64;
    Ok(Loaded { hasher, seed, is_parquet: true, file_bytes, filter: Some(filter) })
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
