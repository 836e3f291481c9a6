//! Copying what recovery read, but cannot know to be durable, into a log of its own.
//!
//! After a sync that failed, the page cache can show bytes that are not on the disk and that no
//! later sync of the file writes any more. The process that saw the failure may be dead. So
//! recovery relies on nothing behind a log's last durable mark: it writes those records once more,
//! into a new file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::Result;
use umbel_env::Env;
use umbel_filter::HashSecret;
use umbel_log::{Expectation, HEADER_BYTES, RECORD_HEADER_BYTES, Record, Sealed};

use crate::names;
use crate::wal;

/// Which records of a log to copy.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// The log.
    pub id: u64,
    /// Where the first of them begins.
    pub start: u64,
    /// Where the last of them ends.
    pub end: u64,
}

/// The log that was written, durable but for its name.
#[derive(Debug)]
pub struct Relogged {
    /// Its id.
    pub id: u64,
    /// Where it ends.
    pub sealed: Sealed,
}

/// Whether this is the record that only a copy begins with. A copy without a name in the manifest
/// was not finished, and what it was made from is still there.
pub fn begins_copy(record: &Record<'_>) -> bool {
    record.offset == HEADER_BYTES && record.payload.is_empty()
}

/// Copies the records of `stretches`, which follow each other, into a new log.
pub fn copy(
    env: &Env,
    folder: &Path,
    ids: &AtomicU64,
    secret: &HashSecret,
    stretches: &[Stretch],
) -> Result<Relogged> {
    let id = ids.fetch_add(1, Ordering::Relaxed);
    let records: u64 = stretches.iter().map(|stretch| stretch.end - stretch.start).sum();
    let segment_bytes = HEADER_BYTES + records + 4 * RECORD_HEADER_BYTES as u64;
    let mut writer = wal::create(env, folder, wal::log_options(secret, id, segment_bytes))?;
    // FORMAT: a record without payload begins a copy.
    writer.append(0, &[])?;
    for stretch in stretches {
        let path = names::log(folder, stretch.id);
        let mut reader = wal::read(env, &path, secret, stretch.id, Expectation::Open)?;
        while let Some(record) = reader.next()? {
            if (stretch.start..stretch.end).contains(&record.offset) {
                writer.append(record.sequence, &[record.payload])?;
            }
        }
    }
    let sealed = writer.seal()?;
    writer.file().sync()?;
    Ok(Relogged { id, sealed })
}
