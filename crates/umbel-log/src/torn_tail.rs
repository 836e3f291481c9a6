//! What stands behind the place where reading stopped.
//!
//! Mapped pages reach the disk in any order, so valid records behind a gap are what an ordinary
//! power cut leaves. Only a record that says that bytes behind the gap's beginning had been synced
//! proves that the gap is damage. This module looks for such a record at every aligned offset.

use umbel_base::Result;

use crate::format::{
    Binding, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader, record_checksum, u32_at,
};
use crate::window::{CHUNK_BYTES, Window};

/// How many bytes may be checksummed per byte of tail. Bytes that nobody made on purpose look like
/// a record too rarely to come near it.
const CHECKSUMMED_PER_BYTE: u64 = 4;

/// What [`examine`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing but zeros, or no bytes at all.
    Zeros,
    /// Bytes, but no record that was asked for.
    Bytes,
    /// A valid record at `offset` that says that everything below `durable` was synced.
    Record {
        /// Where the record is.
        offset: u64,
        /// Its durable mark, in bytes.
        durable: u64,
    },
    /// So much that looks like records and is not that the search was given up.
    Undecided,
}

/// Looks from `start` to the window's limit for a valid record of this log whose durable mark is at
/// least `durable_min`.
/// REQUIRES: `start` is aligned.
pub(crate) fn examine(
    window: &mut Window,
    binding: Binding,
    start: u64,
    durable_min: u64,
) -> Result<Tail> {
    let mut search = Search {
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
                Found::Nothing => {}
                Found::Tail(tail) => return Ok(tail),
                Found::Long { offset: at, record } => {
                    // Its end lies outside the chunk: read it on the side, then go on behind it.
                    if let Some(tail) = search.long(window, at, &record)? {
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

enum Found {
    Nothing,
    Tail(Tail),
    Long { offset: u64, record: RecordHeader },
}

struct Search {
    binding: Binding,
    durable_min: u64,
    limit: u64,
    budget: u64,
    scratch: Vec<u8>,
}

impl Search {
    /// Tries every aligned offset of a chunk that begins at `start`, up to the first candidate that
    /// decides or that reaches out of the chunk.
    fn chunk(&mut self, chunk: &[u8], start: u64) -> Found {
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
            if !self.spend(len) {
                return Found::Tail(Tail::Undecided);
            }
            if len > (chunk.len() - at) as u64 {
                return Found::Long { offset, record };
            }
            let whole = &chunk[at..at + len as usize];
            if record_checksum(self.binding, offset, whole) == record.checksum {
                return Found::Tail(Tail::Record { offset, durable: record.durable });
            }
        }
        Found::Nothing
    }

    /// A header that could be what is searched for, judged without its payload.
    #[inline]
    fn candidate(&self, bytes: &[u8], offset: u64) -> Option<RecordHeader> {
        let record = RecordHeader::decode(self.binding.checksum_id(), bytes)?;
        let plausible = record.durable >= self.durable_min
            && record.durable <= offset
            && record.record_bytes() <= self.limit - offset;
        plausible.then_some(record)
    }

    fn spend(&mut self, bytes: u64) -> bool {
        let enough = bytes <= self.budget;
        self.budget = self.budget.saturating_sub(bytes);
        enough
    }

    /// Checks a candidate that reaches out of its chunk.
    fn long(
        &mut self,
        window: &Window,
        offset: u64,
        record: &RecordHeader,
    ) -> Result<Option<Tail>> {
        let len = record.record_bytes() as usize;
        if self.scratch.len() < len {
            self.scratch.resize(len, 0);
        }
        let whole = &mut self.scratch[..len];
        window.file.read_exact_at(whole, offset)?;
        let valid = record_checksum(self.binding, offset, whole) == record.checksum;
        Ok(valid.then_some(Tail::Record { offset, durable: record.durable }))
    }
}

/// Whether all bytes are zero, eight at a time and with early exits per page.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|page| page.iter().fold(0, |all, byte| all | byte) == 0)
}
