//! How the files of the log are made and read.

use std::path::Path;

use umbel_base::Result;
use umbel_env::Env;
use umbel_filter::{HashSecret, hash_key};
use umbel_log::{Expectation, LogKind, LogOptions, LogReader, LogWriter};

use crate::names;

/// The salt of the log with this id: nobody knows it who does not know the store's secret.
fn salt(secret: &HashSecret, id: u64) -> u64 {
    let mut name = *b"umbel log ........";
    name[10..].copy_from_slice(&id.to_le_bytes());
    hash_key(secret, &name)
}

/// How the log with this id is made.
pub fn log_options(secret: &HashSecret, id: u64, segment_bytes: u64) -> LogOptions {
    LogOptions { kind: LogKind::WriteAhead, log_id: id, salt: salt(secret, id), segment_bytes }
}

/// Opens the log with this id for reading.
pub fn read(
    env: &Env,
    path: &Path,
    secret: &HashSecret,
    id: u64,
    expectation: Expectation,
) -> Result<LogReader> {
    let salt = Some(salt(secret, id));
    LogReader::open_bound(env, path, LogKind::WriteAhead, id, salt, expectation)
}

/// Creates the file of a log, or leaves nothing behind.
pub fn create(env: &Env, folder: &Path, options: LogOptions) -> Result<LogWriter> {
    let path = names::log(folder, options.log_id);
    LogWriter::create(env, &path, options).inspect_err(|_| {
        // What was created of it is in the way of nothing, but takes room.
        let _ = env.files.remove_file(&path);
    })
}
