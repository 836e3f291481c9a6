//! Reads the records of a chunk that no scavenge rewrote, from its beginning to its end.

use std::path::Path;

use umbel_env::{Access, Env, File};
use umbel_log::{END_RECORD_BYTES, ExpectedEnd, LogKind, LogReader, ReadOutcome, Seal};

use crate::event_log::chunk_manifest::{ChunkEnd, ChunkEntry, chunk_path};
use crate::event_log::event_format::{FrameHeader, RECORD_GAP_BYTES};
use crate::limits::FILE_BYTES_MAX;
use crate::types::error::Result;

/// Bytes of a chunk's end that are read at a time.
const TORN_BLOCK_BYTES: usize = 1 << 16;

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

impl ChunkScan {
    /// End of the chunk after its last valid record.
    pub fn end(&self) -> ChunkEnd {
        let ReadOutcome { end, sealed, checksum, .. } = self.outcome;
        let seal = sealed.then_some(Seal { len: end, checksum });
        let end = seal.map_or(end, |seal| seal.len - END_RECORD_BYTES);
        ChunkEnd { end, last_event: self.last_event, seal }
    }
}

/// Bytes from `end` to the last byte that is not zero. Zeros are space that no record used.
pub fn torn_bytes(file: &dyn File, end: u64) -> Result<u64> {
    let mut buffer = vec![0; TORN_BLOCK_BYTES];
    let mut stop = file.len()?;
    while stop > end {
        let start = stop.saturating_sub(TORN_BLOCK_BYTES as u64).max(end);
        let block = &mut buffer[..(stop - start) as usize];
        file.read_exact_at(block, start)?;
        if let Some(last) = block.iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1 - end);
        }
        stop = start;
    }
    Ok(0)
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
