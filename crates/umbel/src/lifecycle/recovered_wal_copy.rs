//! Copies to a new WAL segment the records that recovery read but that are possibly not durable.
//!
//! After a failed sync, the page cache can show bytes that are not on the disk and that no later
//! sync of the file writes. Recovery cannot know of such a failure, since the process that saw it
//! can be dead. So recovery copies the records after a segment's last durable mark into a new file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::Result;
use umbel_env::Env;
use umbel_filter::HashSecret;
use umbel_log::{ExpectedEnd, HEADER_BYTES, RECORD_HEADER_BYTES, Record, Seal};

use crate::fs::filenames;
use crate::wal;

/// Range of records of a WAL segment to copy.
#[derive(Debug, Clone, Copy)]
pub struct RecordRange {
    /// Id of the segment.
    pub id: u64,
    /// Offset of the start of the first record.
    pub start: u64,
    /// Offset of the end of the last record.
    pub end: u64,
}

/// The new segment with the copied records, durable except for its name.
#[derive(Debug)]
pub struct CopiedSegment {
    /// Id of the new segment.
    pub id: u64,
    /// Length and checksum of the new segment.
    pub sealed: Seal,
}

/// Whether `record` is the one with which only copies begin. A copy that the manifest does not name
/// can be incomplete, and its originals still exist.
pub fn begins_copy(record: &Record<'_>) -> bool {
    record.offset == HEADER_BYTES && record.payload.is_empty()
}

/// Copies the records of `stretches`, which are in the order of their writes, into a new segment.
pub fn copy_records(
    env: &Env,
    folder: &Path,
    ids: &AtomicU64,
    secret: &HashSecret,
    stretches: &[RecordRange],
) -> Result<CopiedSegment> {
    let id = ids.fetch_add(1, Ordering::Relaxed);
    let records: u64 = stretches.iter().map(|stretch| stretch.end - stretch.start).sum();
    let segment_bytes = HEADER_BYTES + records + 4 * RECORD_HEADER_BYTES as u64;
    let mut writer = wal::create(env, folder, wal::log_options(secret, id, segment_bytes))?;
    // FORMAT: a record without payload begins a copy.
    writer.append(0, &[])?;
    for stretch in stretches {
        let path = filenames::segment(folder, stretch.id);
        let mut reader = wal::read(env, &path, secret, stretch.id, ExpectedEnd::Open)?;
        while let Some(record) = reader.next()? {
            if (stretch.start..stretch.end).contains(&record.offset) {
                writer.append(record.sequence, &[record.payload])?;
            }
        }
    }
    let sealed = writer.seal()?;
    writer.file().sync()?;
    Ok(CopiedSegment { id, sealed })
}
