//! Files with filters, which are read as a whole, and written as a whole or not at all.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use umbel::Env;
use umbel_filter::{
    Filter, FilterError, FilterFile, FilterFileError, FilterView, HashKind, KeyHasher,
    ParquetError, from_parquet,
};

use crate::errors::{CommandError, CommandResult};
use crate::text::escaping;

/// Number of bytes that show whether a file is a filter.
const MAGIC_READ_BYTES: u64 = 64;
/// First byte of a Parquet filter: the tag of its header's first field, which is a number of 32
/// bits.
const PARQUET_MAGIC: [u8; 1] = [0x15];

/// Filter of a file, with its hasher.
pub struct LoadedFilter {
    /// Hasher of keys.
    pub hasher: KeyHasher,
    /// Seed of the hasher; zeros if it has none.
    pub seed: [u8; 16],
    /// Whether the file has the format of Apache Parquet.
    pub is_parquet: bool,
    /// Length of the file.
    pub file_bytes: u64,
    /// The filter; `None` if it has no keys.
    filter: Option<Filter>,
}

impl LoadedFilter {
    /// Returns the filter, which is probed with hashes of the hasher.
    pub fn view(&self) -> FilterView<'_> {
        self.filter.as_ref().map_or(FilterView::MAYBE, Filter::view)
    }

    /// Returns the bytes after the filter's header.
    pub fn payload(&self) -> &[u8] {
        let bytes = self.filter.as_ref().map(Filter::bytes).unwrap_or_default();
        bytes.get(umbel_filter::HEADER_BYTES..).unwrap_or_default()
    }
}

/// Reads the filter in the file of that name.
pub fn read(path: &Path) -> CommandResult<LoadedFilter> {
    let bytes = read_filter_bytes(path)?;
    let name = path.display();
    let damaged = |reason: &dyn std::fmt::Display| {
        CommandError::Damaged(format!(
            "the filter file {name} is damaged: {reason}; build the filter again"
        ))
    };
    let file_bytes = bytes.len() as u64;
    match FilterFile::parse(&bytes) {
        Ok(file) => {
            let filter = match file.filter_bytes() {
                [] => None,
                bytes => Some(Filter::decode(bytes).map_err(|error| damaged(&error))?),
            };
            let (hasher, seed) = (*file.hasher(), file.seed());
            Ok(LoadedFilter { hasher, seed, is_parquet: false, file_bytes, filter })
        }
        Err(FilterFileError::NotAFilterFile) => load_parquet(path, &bytes),
        Err(
            error @ (FilterFileError::Version { .. }
            | FilterFileError::UnknownHash { .. }
            | FilterFileError::Hash(_)
            | FilterFileError::Filter(FilterError::Unknown { .. })),
        ) => Err(CommandError::usage(format!(
            "{name}: {error}; a newer version of umbel may read it"
        ))),
        Err(error) => Err(damaged(&error)),
    }
}

/// Reads all bytes of a filter's file. Reads only the beginning of any other file, which may be
/// endless.
fn read_filter_bytes(path: &Path) -> CommandResult<Vec<u8>> {
    if path.is_dir() {
        let sentence = format!("{} is a directory; name a filter file", path.display());
        return Err(CommandError::usage(sentence));
    }
    let failed = |error: io::Error| CommandError::system("read", path, &error);
    let mut file = fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    (&mut file).take(MAGIC_READ_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let is_filter = bytes.starts_with(&FilterFile::MAGIC) || bytes.starts_with(&PARQUET_MAGIC);
    if !bytes.is_empty() && !is_filter {
        return Err(not_a_filter(path));
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Returns the error for a file that is no filter.
fn not_a_filter(path: &Path) -> CommandError {
    CommandError::usage(format!(
        "{} is neither a filter file of `umbel filter build` nor a filter of Apache Parquet",
        path.display()
    ))
}

/// Decodes a filter in the format of Apache Parquet. The format has no checksum: bytes with a valid
/// header and the length that it states are accepted.
fn load_parquet(path: &Path, bytes: &[u8]) -> CommandResult<LoadedFilter> {
    let name = path.display();
    let foreign = || not_a_filter(path);
    let (encoded, length) = from_parquet(bytes).map_err(|error| match error {
        ParquetError::Unknown => {
            CommandError::usage(format!("{name}: {error}; a newer version of umbel may read it"))
        }
        _ => foreign(),
    })?;
    if length != bytes.len() {
        return Err(foreign());
    }
    let seed = [0; 16];
    let hasher = KeyHasher::new(HashKind::Xxh64, seed)
        .map_err(|error| CommandError::usage(error.to_string()))?;
    let filter = Filter::decode(&encoded).map_err(|_| foreign())?;
    let file_bytes = bytes.len() as u64;
    Ok(LoadedFilter { hasher, seed, is_parquet: true, file_bytes, filter: Some(filter) })
}

/// Output file of a filter.
pub struct OutputFile {
    path: PathBuf,
    /// Metadata of the regular file that is replaced.
    replaced: Option<fs::Metadata>,
    /// Whether the output is a pipe, a terminal or a device instead of a regular file.
    pub is_stream: bool,
}

impl OutputFile {
    /// Returns the output file with this name, or the target of a symbolic link with this name.
    ///
    /// # Errors
    /// The output is a directory, or is `input`, which it would replace.
    pub fn resolve(path: &Path, input: Option<&Path>) -> CommandResult<OutputFile> {
        let name = path.display();
        if path.is_dir() {
            return Err(CommandError::usage(format!(
                "{name} is a directory; name a file with --output"
            )));
        }
        if path == Path::new("-") {
            return Err(CommandError::usage(
                "`-` cannot be the output file; write to a pipe with `--output /dev/stdout`",
            ));
        }
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let read = input.and_then(|input| fs::canonicalize(input).ok());
        let metadata = fs::metadata(&target).ok();
        let is_stream = metadata.as_ref().is_some_and(|metadata| !metadata.is_file());
        if !is_stream && read.is_some_and(|read| read == target) {
            return Err(CommandError::usage(format!(
                "{name} is the input and would be replaced; name another file with --output"
            )));
        }
        Ok(OutputFile { path: target, replaced: metadata, is_stream })
    }

    /// Writes `bytes` to a temporary file, syncs it and renames it over the output file, whose
    /// permissions stay. A pipe or a device is written directly.
    pub fn write(&self, bytes: &[u8]) -> CommandResult<()> {
        let failed = |error: io::Error| CommandError::system("write", &self.path, &error);
        if self.is_stream {
            return fs::write(&self.path, bytes).map_err(failed);
        }
        let beside = self.temporary_path()?;
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

    /// Returns a path in the same directory that no other process uses or can predict.
    fn temporary_path(&self) -> CommandResult<PathBuf> {
        if self.path.file_name().is_none() {
            return Err(CommandError::usage(format!(
                "`{}` is not a file name; name a file with --output",
                self.path.display()
            )));
        }
        let mut random = [0; 8];
        Env::system().entropy.fill(&mut random)?;
        Ok(self.path.with_file_name(format!(".umbel-{}.tmp", escaping::hex(&random))))
    }
}
