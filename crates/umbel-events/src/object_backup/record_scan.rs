//! Verification of the bytes of a chunk's file before they are uploaded: every record, or the whole
//! scavenged file. A damaged record is never uploaded.

use umbel_backup::BLOCK_BYTES;
use umbel_base::checksum::checksum;
use umbel_env::File;
use umbel_log::{
    END_RECORD_BYTES, HEADER_BYTES, LogKind, RECORD_HEADER_BYTES, RecordBinding, is_header,
    record_at, seal_at, stated_bytes,
};

use crate::event_log::chunk_manifest::{ChunkEntry, ScavengedFile};
use crate::event_log::event_format::{FrameLocation, FrameMeta, Frames, RECORD_GAP_BYTES};
use crate::event_log::scavenged_chunk;
use crate::limits::FILE_BYTES_MAX;
use crate::types::error::Result;

/// Result of the scan of a range of a chunk's file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeScan {
    /// Checksum of each block of the range.
    pub block_checksums: Vec<u64>,
    /// Offset and time of the last event in the range; `None` without events.
    pub last_event: Option<(u64, u64)>,
}

/// A window on a range of a file, which moves forward block by block.
struct Window<'a> {
    file: &'a dyn File,
    chunk: u64,
    to: u64,
    start: u64,
    bytes: Vec<u8>,
    /// Checksum of each block that was read.
    block_checksums: Vec<u64>,
}

impl Window<'_> {
    /// Returns the bytes from `at` on, at least `len` of them unless the range ends before.
    fn get(&mut self, at: u64, len: u64) -> Result<&[u8]> {
        let end = at.saturating_add(len).min(self.to);
        while self.start + (self.bytes.len() as u64) < end {
            let dropped = (at - self.start).min(self.bytes.len() as u64);
            self.bytes.drain(..dropped as usize);
            self.start += dropped;
            let next = self.start + self.bytes.len() as u64;
            let mut block = vec![0; BLOCK_BYTES.min(self.to - next) as usize];
            self.file.read_exact_at(&mut block, next)?;
            self.block_checksums.push(checksum(self.chunk, next, &block));
            self.bytes.extend_from_slice(&block);
        }
        Ok(&self.bytes[(at - self.start) as usize..])
    }
}

/// Reads the records in the range `from..to` of a chunk's file and verifies each of them. A range
/// consists of whole records, with the file's header if it begins at 0, and with the end record if
/// it reaches the end of a sealed chunk.
///
/// # Errors
/// `Corruption` with the file and the offset of the damage.
pub fn scan_records(
    file: &dyn File,
    entry: &ChunkEntry,
    (from, to): (u64, u64),
) -> Result<RangeScan> {
    let corrupt = |offset: u64, reason: &str| {
        let reason = format!("{reason}, so the bytes from here on are not backed up");
        Err(umbel::Error::corruption(file.path(), offset, reason).into())
    };
    let binding = RecordBinding { log_id: entry.id, salt: 0 };
    let (start, bytes, block_checksums) = (from, Vec::new(), Vec::new());
    let mut window = Window { file, chunk: entry.id, to, start, bytes, block_checksums };
    let (mut at, mut last_event) = (from, None);
    if from == 0 {
        if !is_header(LogKind::Events, binding, window.get(0, HEADER_BYTES)?) {
            return corrupt(0, "the file does not begin with the header of this chunk");
        }
        at = HEADER_BYTES;
    }
    let seal = entry.ended.and_then(|ended| ended.seal);
    while at < to {
        if let Some(seal) = seal.filter(|seal| at + END_RECORD_BYTES == seal.len) {
            let bytes = window.get(at, END_RECORD_BYTES)?;
            if seal_at(binding, at, bytes) != Some(seal) {
                return corrupt(at, "the end record of the chunk is damaged");
            }
            at += END_RECORD_BYTES;
            continue;
        }
        let head = stated_bytes(window.get(at, RECORD_HEADER_BYTES as u64)?);
        let len = head.filter(|len| *len <= to - at);
        let Some(len) = len else { return corrupt(at, "a record is damaged") };
        let Some(record) = record_at(binding, at, window.get(at, len)?) else {
            return corrupt(at, "a record is damaged");
        };
        let from = at + RECORD_GAP_BYTES;
        let place = FrameLocation { chunk: entry.id, offset: from };
        match last_frame(Frames::new(record.payload, place)) {
            Ok(Some(meta)) => last_event = Some((meta.location.offset, meta.created)),
            Ok(None) => return corrupt(from, "an event is damaged"),
            Err(offset) => return corrupt(offset, "an event is damaged"),
        }
        at += len;
    }
    Ok(RangeScan { block_checksums: window.block_checksums, last_event })
}

/// Returns the stamp of the last of these frames; `None` without one. The error is the offset of
/// bytes that are no event.
fn last_frame(mut frames: Frames<'_>) -> std::result::Result<Option<FrameMeta>, u64> {
    frames.try_fold(None, |_, frame| Ok(Some(frame?.meta)))
}

/// Reads the whole file of a scavenged chunk and verifies it with all its events.
///
/// # Errors
/// `Corruption` with the file and the offset of the damage.
pub fn scan_scavenged(
    file: &dyn File,
    entry: &ChunkEntry,
    scavenged: &ScavengedFile,
) -> Result<RangeScan> {
    let len = scavenged.file_bytes;
    let corrupt = |offset: u64, reason: &str| {
        let reason = format!("{reason}, so the chunk is not backed up");
        Err(umbel::Error::corruption(file.path(), offset, reason).into())
    };
    if len > FILE_BYTES_MAX || file.len()? != len {
        return corrupt(0, "the scavenged chunk has another length than the chunk manifest states");
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    if checksum(entry.id, 0, &bytes) != scavenged.checksum {
        return corrupt(0, "the scavenged chunk does not match its checksum");
    }
    let range = (entry.start, entry.start + entry.capacity);
    let map = scavenged_chunk::read_position_map(file, entry.id, scavenged.version, range)?;
    let frames = bytes.get(..map.frames_end as usize).unwrap_or(&bytes);
    let last_event = match last_frame(scavenged_chunk::frames(frames, entry.id)) {
        Ok(last) => last.map(|meta| (meta.position - entry.start, meta.created)),
        Err(offset) => return corrupt(offset, "an event is damaged"),
    };
    let blocks = bytes.chunks(BLOCK_BYTES as usize).enumerate();
    let sum =
        |(number, block): (usize, &[u8])| checksum(entry.id, number as u64 * BLOCK_BYTES, block);
    Ok(RangeScan { block_checksums: blocks.map(sum).collect(), last_event })
}
