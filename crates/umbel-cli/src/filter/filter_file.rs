//! Filters in files: read whole, written whole or not at all.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use umbel::Env;
use umbel_filter::{
    FileError, Filter, FilterError, FilterFile, FilterView, HashKind, KeyHasher, ParquetError,
    from_parquet,
};

use crate::errors::{Failure, Outcome};
use crate::text;

/// So many bytes tell whether a file is a filter.
const BEGINNING: u64 = 64;
/// What a filter of Parquet begins with: the first field of its header, a number of 32 bits.
const PARQUET_BEGINS: [u8; 1] = [0x15];

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
    let bytes = bytes_of(path)?;
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
            error @ (FileError::Version { .. }
            | FileError::UnknownHash { .. }
            | FileError::Hash(_)
            | FileError::Filter(FilterError::Unknown { .. })),
        ) => Err(Failure::usage(format!("{name}: {error}; a newer umbel may read it"))),
        Err(error) => Err(damaged(&error)),
    }
}

/// All bytes of a filter's file. Of another file, which may be long or endless, no more than its
/// beginning.
fn bytes_of(path: &Path) -> Outcome<Vec<u8>> {
    if path.is_dir() {
        let sentence = format!("{} is a folder; name a filter's file", path.display());
        return Err(Failure::usage(sentence));
    }
    let failed = |error: io::Error| Failure::system("read", path, &error);
    let mut file = fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    (&mut file).take(BEGINNING).read_to_end(&mut bytes).map_err(failed)?;
    let is_filter = bytes.starts_with(&FilterFile::MAGIC) || bytes.starts_with(&PARQUET_BEGINS);
    if !bytes.is_empty() && !is_filter {
        return Err(foreign(path));
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The failure for a file that is no filter at all.
fn foreign(path: &Path) -> Failure {
    Failure::usage(format!(
        "{} is neither a filter that `umbel filter build` wrote nor one of Apache Parquet",
        path.display()
    ))
}

/// A filter as Parquet writes it. It has no checksum: what has its header and its length is one.
fn parquet(path: &Path, bytes: &[u8]) -> Outcome<Loaded> {
    let name = path.display();
    let foreign = || foreign(path);
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

/// Where a filter goes.
pub struct Target {
    path: PathBuf,
    /// What there is of a plain file that will be replaced.
    replaced: Option<fs::Metadata>,
    /// Whether it is no plain file but a pipe, a terminal or a device.
    pub is_stream: bool,
}

impl Target {
    /// The file of that name, or where a link of that name leads.
    ///
    /// # Errors
    /// Where it is a folder, or `input`, which it would replace.
    pub fn of(path: &Path, input: Option<&Path>) -> Outcome<Target> {
        let name = path.display();
        if path.is_dir() {
            return Err(Failure::usage(format!("{name} is a folder; name a file with --output")));
        }
        if path == Path::new("-") {
            return Err(Failure::usage(
                "`-` is no name for a filter's file; `--output /dev/stdout` writes into a pipe",
            ));
        }
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let read = input.and_then(|input| fs::canonicalize(input).ok());
        let metadata = fs::metadata(&target).ok();
        let is_stream = metadata.as_ref().is_some_and(|metadata| !metadata.is_file());
        if !is_stream && read.is_some_and(|read| read == target) {
            return Err(Failure::usage(format!(
                "{name} is read and would be replaced; name another file with --output"
            )));
        }
        Ok(Target { path: target, replaced: metadata, is_stream })
    }

    /// Writes `bytes` beside the file, syncs them and puts them in its place; its permissions stay.
    /// A pipe or a device is written as it is.
    pub fn write(&self, bytes: &[u8]) -> Outcome<()> {
        let failed = |error: io::Error| Failure::system("write", &self.path, &error);
        if self.is_stream {
            return fs::write(&self.path, bytes).map_err(failed);
        }
        let beside = self.beside()?;
        let mut created = false;
        let written = fs::File::create_new(&beside).and_then(|mut file| {
            created = true;
            if let Some(replaced) = &self.replaced {
                file.set_permissions(replaced.permissions())?;
            }
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)
        });
        written.map_err(|error| {
            if created {
                let _ = fs::remove_file(&beside);
            }
            failed(error)
        })
    }

    /// A name in the same folder that nobody else uses or can foresee.
    fn beside(&self) -> Outcome<PathBuf> {
        if self.path.file_name().is_none() {
            return Err(Failure::usage(format!(
                "`{}` is no name for a file; name one with --output",
                self.path.display()
            )));
        }
        let mut random = [0; 8];
        Env::system().entropy.fill(&mut random)?;
        Ok(self.path.with_file_name(format!(".umbel-{}.tmp", text::hex(&random))))
    }
}
