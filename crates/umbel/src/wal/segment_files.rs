//! Creates and opens the files of WAL segments.

use std::path::Path;

use umbel_base::Result;
use umbel_env::Env;
use umbel_filter::{HashSecret, hash_key};
use umbel_log::{ExpectedEnd, LogKind, LogOptions, LogReader, LogWriter};

use crate::fs::filenames;

/// Returns the salt of the segment with this id. The salt is secret, because it derives from the
/// store's secret.
fn salt(secret: &HashSecret, id: u64) -> u64 {
    let mut name = *b"umbel log ........";
    name[10..].copy_from_slice(&id.to_le_bytes());
    hash_key(secret, &name)
}

/// Options of the segment with this id.
pub fn log_options(secret: &HashSecret, id: u64, segment_bytes: u64) -> LogOptions {
    LogOptions { kind: LogKind::WriteAhead, log_id: id, salt: salt(secret, id), segment_bytes }
}

/// Opens the segment with this id for reading.
pub fn read(
    env: &Env,
    path: &Path,
    secret: &HashSecret,
    id: u64,
    expectation: ExpectedEnd,
) -> Result<LogReader> {
    let salt = Some(salt(secret, id));
    LogReader::open_bound(env, path, LogKind::WriteAhead, id, salt, expectation)
}

/// Creates the file of a segment. After an error no file is left.
pub fn create(env: &Env, folder: &Path, options: LogOptions) -> Result<LogWriter> {
    let path = filenames::segment(folder, options.log_id);
    LogWriter::create(env, &path, options).inspect_err(|_| {
        // A partial file blocks nothing, but takes disk space.
        let _ = env.files.remove_file(&path);
    })
}
