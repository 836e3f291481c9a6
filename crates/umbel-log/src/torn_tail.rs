//! Classification of the bytes after the last valid record.
//!
//! Mapped pages reach the disk in any order, so an ordinary power loss can leave valid records
//! after a gap. Only a record whose durable mark covers bytes after the start of the gap proves
//! that the gap is damage. This module searches every aligned offset for such a record.

use umbel_base::Result;

use crate::format::{
    RECORD_ALIGN, RECORD_HEADER_BYTES, RecordBinding, RecordHeader, record_checksum, u32_at,
};
use crate::read_buffer::{CHUNK_BYTES, ReadBuffer};

/// Maximum number of bytes that are checksummed for each byte of the tail. Bytes that were not
/// chosen on purpose look like a record too rarely to come near this limit.
const CHECKSUMMED_PER_BYTE: u64 = 4;

/// Result of [`examine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The tail has only zeros, or no bytes.
    Zeros,
    /// The tail has nonzero bytes, but no searched record.
    Bytes,
    /// The tail has a valid record at `offset`, which says that all bytes below `durable` were
    /// synced.
    Record {
        /// Offset of the record.
        offset: u64,
        /// Durable mark of the record, in bytes.
        durable: u64,
    },
    /// The search stopped, because too many bytes look like records.
    Undecided,
}

/// Searches from `start` to the window's limit for a valid record of this log whose durable mark is
/// at least `durable_min`.
/// REQUIRES: `start` is aligned.
pub(crate) fn examine(
    window: &mut ReadBuffer,
    binding: RecordBinding,
    start: u64,
    durable_min: u64,
) -> Result<Tail> {
    let mut search = TailSearch {
        binding,
        durable_min,
        limit: window.limit,
        budget: window.remaining(start).saturating_mul(CHECKSUMMED_PER_BYTE),
        scratch: Vec::new(),
    };
    let mut zeros = true;
    let mut offset = start;
    while offset < window.limit {
        let len = window.remaining(offset).min(CHUNK_BYTES) as usize;
        let chunk = window.get(offset, len)?;
        if !is_zero(chunk) {
            zeros = false;
            let found = search.chunk(chunk, offset);
            match found {
                ChunkMatch::Nothing => {}
                ChunkMatch::Tail(tail) => return Ok(tail),
                ChunkMatch::Long { offset: at, record } => {
                    // The record ends outside the chunk: read it separately, then continue after
                    // it.
                    if let Some(tail) = search.check_long_candidate(window, at, &record)? {
                        return Ok(tail);
                    }
                    offset = at + RECORD_ALIGN;
                    continue;
                }
            }
        }
        if len < RECORD_HEADER_BYTES || offset + len as u64 == window.limit {
            break;
        }
        // The last offsets of a chunk have too few bytes for a header: they begin the next chunk.
        let looked_at = (len - RECORD_HEADER_BYTES) as u64 / RECORD_ALIGN * RECORD_ALIGN;
        offset += looked_at + RECORD_ALIGN;
    }
    Ok(if zeros { Tail::Zeros } else { Tail::Bytes })
}

enum ChunkMatch {
    Nothing,
    Tail(Tail),
    Long { offset: u64, record: RecordHeader },
}

struct TailSearch {
    binding: RecordBinding,
    durable_min: u64,
    limit: u64,
    budget: u64,
    scratch: Vec<u8>,
}

impl TailSearch {
    /// Tries every aligned offset of a chunk that begins at `start`, up to the first record found
    /// or the first candidate that extends beyond the chunk.
    fn chunk(&mut self, chunk: &[u8], start: u64) -> ChunkMatch {
        let low = self.binding.checksum_id() as u32;
        for (index, bytes) in
            chunk.windows(RECORD_HEADER_BYTES).step_by(RECORD_ALIGN as usize).enumerate()
        {
            // Most offsets are turned down by this one comparison.
            if u32_at(bytes, 12) != low {
                continue;
            }
            let at = index * RECORD_ALIGN as usize;
            let offset = start + at as u64;
            let Some(record) = self.candidate(bytes, offset) else { continue };
            let len = record.record_bytes();
            if !self.spend_budget(len) {
                return ChunkMatch::Tail(Tail::Undecided);
            }
            if len > (chunk.len() - at) as u64 {
                return ChunkMatch::Long { offset, record };
            }
            let bytes = &chunk[at..at + len as usize];
            if record_checksum(self.binding, offset, bytes) == record.checksum {
                return ChunkMatch::Tail(Tail::Record { offset, durable: record.durable });
            }
        }
        ChunkMatch::Nothing
    }

    /// Returns the header at the start of `bytes` if it can be the header of a searched record.
    /// Does not read the payload.
    #[inline]
    fn candidate(&self, bytes: &[u8], offset: u64) -> Option<RecordHeader> {
        let record = RecordHeader::decode(self.binding.checksum_id(), bytes)?;
        let plausible = record.durable >= self.durable_min
            && record.durable <= offset
            && record.record_bytes() <= self.limit - offset;
        plausible.then_some(record)
    }

    fn spend_budget(&mut self, bytes: u64) -> bool {
        let enough = bytes <= self.budget;
        self.budget = self.budget.saturating_sub(bytes);
        enough
    }

    /// Checks a candidate that extends beyond its chunk.
    fn check_long_candidate(
        &mut self,
        window: &ReadBuffer,
        offset: u64,
        record: &RecordHeader,
    ) -> Result<Option<Tail>> {
        let len = record.record_bytes() as usize;
        if self.scratch.len() < len {
            self.scratch.resize(len, 0);
        }
        let bytes = &mut self.scratch[..len];
        window.file.read_exact_at(bytes, offset)?;
        let valid = record_checksum(self.binding, offset, bytes) == record.checksum;
        Ok(valid.then_some(Tail::Record { offset, durable: record.durable }))
    }
}

/// Whether all bytes are zero, eight at a time and with early exits per page.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|page| page.iter().fold(0, |all, byte| all | byte) == 0)
}
