//! Copies records that recovery read, but that may not be durable, to a new WAL segment.
//!
//! After a failed sync, the page cache can show bytes that are not on the disk and that no later
//! sync of the file writes. The process that saw the failure may be dead. So recovery relies on no
//! record after a segment's last durable mark: it writes those records again, into a new file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::Result;
use umbel_env::Env;
use umbel_filter::HashSecret;
use umbel_log::{ExpectedEnd, HEADER_BYTES, RECORD_HEADER_BYTES, Record, Seal};

use crate::fs::filenames;
use crate::wal;

/// Records of a segment to copy.
#[derive(Debug, Clone, Copy)]
pub struct RecordRange {
    /// The segment.
    pub id: u64,
    /// Start of the first of them.
    pub start: u64,
    /// End of the last of them.
    pub end: u64,
}

/// The segment that was written, durable except for its name.
#[derive(Debug)]
pub struct CopiedSegment {
    /// Its id.
    pub id: u64,
    /// Its end.
    pub sealed: Seal,
}

/// Whether this is the record that begins copies only. A copy that the manifest does not name is
/// incomplete, and its originals still exist.
pub fn begins_copy(record: &Record<'_>) -> bool {
    record.offset == HEADER_BYTES && record.payload.is_empty()
}

/// Copies the records of `stretches`, which follow each other, into a new segment.
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
