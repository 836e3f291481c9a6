//! [`ChunkBytes`]: bytes of whole records of a chunk, as a slot of a replicated log has them.

use std::ops::Range;

use umbel_base::Result;
use umbel_log::HEADER_BYTES;

use crate::event_log::EventLog;

/// Bytes of whole records of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkBytes {
    /// Id of the chunk.
    pub chunk: u64,
    /// Position of the chunk's first byte.
    pub start: u64,
    /// Positions from `start + capacity` on belong to later chunks.
    pub capacity: u64,
    /// Offset of the bytes in the chunk.
    pub from: u64,
    /// The records.
    pub bytes: Vec<u8>,
}

impl EventLog {
    /// Returns the records from one position up to another, chunk by chunk, with the end record of
    /// each chunk before the last one. The headers of the chunks are left out.
    ///
    /// REQUIRES: both positions are ends of records, or 0; the range is durable; and no chunk in it
    /// was scavenged.
    pub fn read_records(&self, range: Range<u64>) -> Result<Vec<ChunkBytes>> {
        let mut parts = Vec::new();
        for chunk in self.chunks.all().iter() {
            let is_last = range.end <= chunk.start + chunk.capacity;
            let ended = chunk.ended.get().filter(|_| !is_last);
            let end = match ended {
                Some(ended) => ended.file_bytes(),
                None => range.end.saturating_sub(chunk.start),
            };
            let from = range.start.saturating_sub(chunk.start).max(HEADER_BYTES);
            if chunk.last_event().is_some() && from < end {
                let mut bytes = vec![0; (end - from) as usize];
                chunk.read(&*self.chunks.file(chunk)?, &mut bytes, from)?;
                let (id, start, capacity) = (chunk.id, chunk.start, chunk.capacity);
                parts.push(ChunkBytes { chunk: id, start, capacity, from, bytes });
            }
            if is_last {
                break;
            }
        }
        Ok(parts)
    }
}
