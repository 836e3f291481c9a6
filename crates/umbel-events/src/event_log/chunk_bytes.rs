//! [`ChunkBytes`]: bytes of whole records of a chunk, as a slot of a replicated log has them.

use std::ops::Range;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::File;
use umbel_log::{
    END_RECORD_BYTES, ExpectedEnd, HEADER_BYTES, LogKind, LogReader, RECORD_ALIGN, RecordBinding,
    Seal, seal_at, stated_mark,
};

use crate::event_log::EventLog;
use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::ChunkEnd;

/// Bytes of whole records of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkBytes {
    /// Id of the chunk.
    pub chunk: u64,
    /// Position of the chunk's first byte.
    pub start: u64,
    /// Positions from `start + capacity` on belong to later chunks.
    pub capacity: u64,
    /// Random key of the chunk.
    pub key: u64,
    /// Offset of the bytes in the chunk.
    pub from: u64,
    /// The records; empty where only the end of the chunk is new.
    pub bytes: Vec<u8>,
    /// End of the chunk, if its last records are here or before.
    pub ended: Option<ChunkEndRecord>,
}

/// Content of the end record of a chunk that does not follow from the records, and its running
/// checksum, which does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEndRecord {
    /// Offset after the last record.
    pub end: u64,
    /// Durable mark of the end record, in units of 8 bytes.
    pub mark: u32,
    /// Running checksum over all records.
    pub running: u64,
}

impl EventLog {
    /// Returns the records from one position up to another, chunk by chunk. The headers and the end
    /// records of the chunks are left out. Each chunk before the last one states its end.
    ///
    /// REQUIRES: both positions are ends of records, or 0; the range is durable; and no chunk in it
    /// was scavenged.
    pub fn read_records(&self, range: Range<u64>) -> Result<Vec<ChunkBytes>> {
        let mut parts = Vec::new();
        for chunk in self.chunks.all().iter() {
            let is_last = range.end <= chunk.start + chunk.capacity;
            if chunk.last_event().is_some() {
                parts.extend(self.read_part(chunk, &range, is_last)?);
            }
            if is_last {
                break;
            }
        }
        Ok(parts)
    }

    /// Returns the part of the range in a chunk; `None` if there is none. The end of a chunk that
    /// ends where the range begins is in the range, since a slot has it with the next records.
    fn read_part(
        &self,
        chunk: &Arc<Chunk>,
        range: &Range<u64>,
        is_last: bool,
    ) -> Result<Option<ChunkBytes>> {
        let ended = chunk.ended.get().filter(|_| !is_last);
        let end = match ended {
            Some(ended) => ended.end,
            None => range.end.saturating_sub(chunk.start),
        };
        let from = range.start.saturating_sub(chunk.start).max(HEADER_BYTES);
        if from > end || (from == end && ended.is_none()) {
            return Ok(None);
        }
        let file = self.chunks.file(chunk)?;
        let mut bytes = vec![0; (end - from) as usize];
        chunk.read(&*file, &mut bytes, from)?;
        let ended = ended.map(|ended| self.end_record(chunk, &*file, ended)).transpose()?;
        let Chunk { id, start, capacity, key, .. } = **chunk;
        Ok(Some(ChunkBytes { chunk: id, start, capacity, key, from, bytes, ended }))
    }

    fn end_record(
        &self,
        chunk: &Chunk,
        file: &dyn File,
        ended: &ChunkEnd,
    ) -> Result<ChunkEndRecord> {
        match ended.seal {
            Some(seal) => read_end_record(chunk, file, ended.end, seal),
            None => self.missing_end_record(chunk, ended.end),
        }
    }

    /// Returns the end record that a chunk without one must get. The process that wrote the chunk
    /// died, and the open after it ended the chunk. Everything in it is durable.
    fn missing_end_record(&self, chunk: &Chunk, end: u64) -> Result<ChunkEndRecord> {
        let (kind, expected) = (LogKind::Events, ExpectedEnd::Open);
        let mut reader = LogReader::open(&self.env, &chunk.path, kind, chunk.id, expected)?;
        while reader.outcome().end < end && reader.next()?.is_some() {}
        let outcome = reader.outcome();
        if outcome.end != end {
            let reason = "the records of the chunk do not reach its end";
            return Err(Error::corruption(&chunk.path, outcome.end, reason));
        }
        let mark = u32::try_from(end / RECORD_ALIGN).unwrap_or(u32::MAX);
        Ok(ChunkEndRecord { end, mark, running: outcome.checksum })
    }
}

fn read_end_record(chunk: &Chunk, file: &dyn File, end: u64, seal: Seal) -> Result<ChunkEndRecord> {
    let mut record = [0; END_RECORD_BYTES as usize];
    chunk.read(file, &mut record, end)?;
    let binding = RecordBinding { log_id: chunk.id, salt: 0 };
    let mark = stated_mark(&record).filter(|_| seal_at(binding, end, &record) == Some(seal));
    let reason = "the end record of the chunk is damaged";
    let mark = mark.ok_or_else(|| Error::corruption(&chunk.path, end, reason))?;
    Ok(ChunkEndRecord { end, mark, running: seal.checksum })
}
