//! Reads the records of a chunk that no scavenge rewrote, from its beginning to its end.

use std::path::Path;

use umbel_env::{Access, Env};
use umbel_log::{ExpectedEnd, LogKind, LogReader, ReadOutcome};

use crate::event_log::chunk_manifest::{ChunkEntry, chunk_path};
use crate::event_log::event_format::{FrameHeader, RECORD_GAP_BYTES};
use crate::limits::FILE_BYTES_MAX;
use crate::types::error::Result;

/// Result of a chunk's scan.
#[derive(Debug)]
pub struct ChunkScan {
    /// End of the chunk's records, as the scan found it.
    pub outcome: ReadOutcome,
    /// Offset of the chunk's last event; 0 without events.
    pub last_event: u64,
    /// Whether complete records follow the end of a chunk without an end record.
    pub has_records_after_end: bool,
}

/// Reads the records of a chunk.
pub fn scan_chunk(
    env: &Env,
    folder: &Path,
    entry: &ChunkEntry,
    expectation: ExpectedEnd,
) -> Result<ChunkScan> {
    scan_chunk_with_check(env, folder, entry, expectation, &|| Ok(()))
}

/// Reads the records of a chunk, and calls `check` after each of them. An error of `check` ends the
/// scan.
pub fn scan_chunk_with_check(
    env: &Env,
    folder: &Path,
    entry: &ChunkEntry,
    expectation: ExpectedEnd,
    check: &dyn Fn() -> Result<()>,
) -> Result<ChunkScan> {
    scan_records(env, &chunk_path(folder, entry.id), entry.id, expectation, check)
}

/// Reads the records of the chunk with this id in a file, which may have another chunk's name.
pub fn scan_chunk_file(
    env: &Env,
    path: &Path,
    id: u64,
    expectation: ExpectedEnd,
) -> Result<ChunkScan> {
    scan_records(env, path, id, expectation, &|| Ok(()))
}

fn scan_records(
    env: &Env,
    path: &Path,
    id: u64,
    expectation: ExpectedEnd,
    check: &dyn Fn() -> Result<()>,
) -> Result<ChunkScan> {
    check_length(env, path)?;
    let mut reader = LogReader::open(env, path, LogKind::Events, id, expectation).map_err(
        |error| match error.is_missing_file() {
            true => umbel::Error::corruption(path, 0, "this chunk of the event log is missing"),
            false => error,
        },
    )?;
    let mut last_event = 0;
    while let Some(record) = reader.next()? {
        let mut offset = record.offset + RECORD_GAP_BYTES;
        let mut payload = record.payload;
        while !payload.is_empty() {
            let head = FrameHeader::decode(payload, payload.len());
            let bytes = head.map(FrameHeader::padded_bytes).filter(|bytes| *bytes <= payload.len());
            let Some(bytes) = bytes else {
                let reason = "the record is valid, but its contents are not events";
                return Err(umbel::Error::corruption(path, offset, reason).into());
            };
            last_event = offset;
            offset += bytes as u64;
            payload = &payload[bytes..];
        }
        check()?;
    }
    Ok(ChunkScan {
        outcome: reader.outcome(),
        last_event,
        has_records_after_end: reader.find_record_after_end()?.is_some(),
    })
}

/// Returns an error where the file of a chunk exceeds the maximum length. Only another program can
/// have made the file that long, perhaps with holes, and reading all of it would take too long.
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
