//! Reading the records of a chunk that was appended to, from its beginning to its end.

use std::path::Path;

use umbel_env::{Access, Env};
use umbel_log::{Expectation, LogKind, LogReader, Outcome};

use crate::chunk_table::{ChunkEntry, chunk_path};
use crate::error::Result;
use crate::format::{BETWEEN_RECORDS, FrameHead};
use crate::limits::FILE_BYTES_MAX;

/// What was read of a chunk.
#[derive(Debug)]
pub struct ChunkRead {
    /// How it ends.
    pub outcome: Outcome,
    /// Where its last event begins; 0 of a chunk without any.
    pub last_event: u64,
    /// Whether whole records stand behind the end of a chunk that nobody ended.
    pub has_more: bool,
}

/// Reads the records of a chunk.
pub fn read_chunk(
    env: &Env,
    folder: &Path,
    entry: &ChunkEntry,
    expectation: Expectation,
) -> Result<ChunkRead> {
    read_chunk_file(env, &chunk_path(folder, entry.id), entry.id, expectation)
}

/// Reads the records of the chunk with this id in a file, which may have another chunk's name.
pub fn read_chunk_file(
    env: &Env,
    path: &Path,
    id: u64,
    expectation: Expectation,
) -> Result<ChunkRead> {
    check_length(env, path)?;
    let mut reader = LogReader::open(env, path, LogKind::Events, id, expectation).map_err(
        |error| match error.is_missing_file() {
            true => umbel::Error::corruption(path, 0, "this part of the event log is missing"),
            false => error,
        },
    )?;
    let mut last_event = 0;
    while let Some(record) = reader.next()? {
        let mut offset = record.offset + BETWEEN_RECORDS;
        let mut payload = record.payload;
        while !payload.is_empty() {
            let head = FrameHead::decode(payload, payload.len());
            let bytes = head.map(FrameHead::padded_bytes).filter(|bytes| *bytes <= payload.len());
            let Some(bytes) = bytes else {
                let reason = "the record is valid, but what is in it are no events";
                return Err(umbel::Error::corruption(path, offset, reason).into());
            };
            last_event = offset;
            offset += bytes as u64;
            payload = &payload[bytes..];
        }
    }
    Ok(ChunkRead { outcome: reader.outcome(), last_event, has_more: reader.behind()?.is_some() })
}

/// An error where the file of a chunk is longer than any is: somebody made it so, perhaps of holes,
/// and nobody wants to wait until all of it is read.
fn check_length(env: &Env, path: &Path) -> Result<()> {
    let file = match env.files.open(path, Access::Read) {
        Err(error) if error.is_missing_file() => return Ok(()),
        opened => opened?,
    };
    let len = file.len()?;
    if len <= FILE_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("the file has {len} bytes, but no chunk has more than {FILE_BYTES_MAX}");
    Err(umbel::Error::corruption(path, FILE_BYTES_MAX, reason).into())
}
