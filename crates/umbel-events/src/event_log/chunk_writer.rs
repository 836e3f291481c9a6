//! [`ChunkWriter`]: appends to the last chunk of the log, and continues in the next one.

use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_log::{LogWriter, Seal};

use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::ChunkEnd;
use crate::event_log::event_format::{FrameLocation, RECORD_GAP_BYTES};

use super::{ChunkBeginning, EventLog};

/// Fraction of a chunk, and maximum in bytes, that is reserved for events that hide other events.
const DELETE_RESERVE: (u64, u64) = (64, 64 << 10);

/// Writer of the last chunk of the log. The appender owns it.
#[derive(Debug, Default)]
pub struct ChunkWriter {
    active: Option<ActiveChunk>,
}

#[derive(Debug)]
struct ActiveChunk {
    chunk: Arc<Chunk>,
    writer: LogWriter,
    last_event: u64,
    /// Whether the appender has requested the preparation of the next chunk.
    has_requested_next: bool,
    /// End and seal of the chunk, until the seal is written to the file.
    seal: Option<(u64, Seal)>,
}

/// Start of an append.
#[derive(Debug, Clone, Copy)]
pub struct AppendStart {
    /// Location of its first frame.
    pub location: FrameLocation,
    /// Position of the chunk's first byte.
    pub chunk_start: u64,
    /// Offset of the previous frame in the chunk; 0 for the first frame.
    pub last_event: u64,
}

impl ActiveChunk {
    fn new(chunk: Arc<Chunk>, writer: LogWriter, last_event: u64) -> ActiveChunk {
        ActiveChunk { chunk, writer, last_event, has_requested_next: false, seal: None }
    }
}

impl ChunkWriter {
    /// The writer of a replica, which continues this chunk after its event at the offset
    /// `last_event`; 0 without events.
    pub fn resume((chunk, writer): (Arc<Chunk>, LogWriter), last_event: u64) -> ChunkWriter {
        ChunkWriter { active: Some(ActiveChunk::new(chunk, writer, last_event)) }
    }

    /// Begins a chunk of a replica. REQUIRES: the current chunk has ended.
    ///
    /// # Errors
    /// Those of [`EventLog::begin_chunk`].
    pub fn begin_chunk(&mut self, log: &EventLog, begins: &ChunkBeginning) -> Result<()> {
        if let Some(active) = &self.active {
            let id = active.chunk.id;
            return Err(Error::invalid(format!("chunk {id} has not ended")));
        }
        let (chunk, writer) = log.begin_chunk(begins)?;
        self.active = Some(ActiveChunk::new(chunk, writer, 0));
        Ok(())
    }

    /// Running checksum over the records of the current chunk, and their end.
    pub fn running_checksum(&self) -> Option<(u64, u64)> {
        let active = self.active.as_ref()?;
        Some((active.writer.running_checksum(), active.writer.end()))
    }

    /// Appends records that another node made for this place, with all frames up to the offset
    /// `last_event`. Returns the position after the records.
    ///
    /// # Errors
    /// `Invalid`, with nothing written, if the records do not continue the chunk.
    pub fn append_encoded(&mut self, records: &[u8], last_event: u64) -> Result<u64> {
        let Some(active) = &mut self.active else {
            return Err(Error::invalid("internal: no active chunk to append to"));
        };
        let appended = active.writer.append_encoded(records)?;
        active.last_event = last_event;
        active.chunk.set_end(appended.end, last_event);
        Ok(active.chunk.start + appended.end)
    }

    /// Ends the current chunk of a replica with the durable mark of the node that ended it first.
    ///
    /// # Errors
    /// Those of [`ChunkWriter::end_chunk`].
    pub fn end_chunk_with_mark(&mut self, log: &EventLog, mark: u32) -> Result<()> {
        self.end_chunk_as(log, Some(mark))
    }

    /// Number of bytes at the end of the current chunk that are reserved for events that hide other
    /// events. Once such events are appended, a scavenge can free space on a full disk.
    pub fn reserve_bytes(&self) -> usize {
        let reserve = |active: &ActiveChunk| {
            (active.writer.capacity() / DELETE_RESERVE.0).min(DELETE_RESERVE.1)
        };
        self.active.as_ref().map_or(0, reserve) as usize
    }

    /// The current chunk.
    pub fn active_chunk(&self) -> Option<&Arc<Chunk>> {
        self.active.as_ref().map(|active| &active.chunk)
    }

    /// Whether the current chunk has events.
    pub fn has_events(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.last_event > 0)
    }

    /// Whether an append of `payload_bytes` bytes does not fit into the current chunk.
    pub fn is_full(&self, payload_bytes: usize) -> bool {
        let is_full =
            |active: &ActiveChunk| active.seal.is_some() || !active.writer.fits(payload_bytes);
        self.active.as_ref().is_none_or(is_full)
    }

    /// Whether the next chunk should be prepared; true once for each chunk, when the chunk is more
    /// than half full.
    pub fn take_next_request(&mut self) -> bool {
        let Some(active) = &mut self.active else { return false };
        let is_half_full = active.writer.end() > active.writer.capacity() / 2;
        is_half_full && !std::mem::replace(&mut active.has_requested_next, is_half_full)
    }

    /// Ends the current chunk and continues in the next one. If the end cannot be written, the log
    /// does not continue: after a crash, later chunks would not count. Where the disk is full, the
    /// next call retries.
    pub fn roll(&mut self, log: &EventLog, payload_bytes: usize, frees_space: bool) -> Result<()> {
        // The next chunk is taken first: a sync in flight holds the lock of the list that it joins.
        // The end is written meanwhile.
        let (chunk, writer) = log.take_next(payload_bytes, frees_space)?;
        if let Err(error) = self.end_chunk(log) {
            log.return_next(chunk, writer);
            return Err(error);
        }
        self.active = Some(ActiveChunk::new(chunk, writer, 0));
        Ok(())
    }

    /// Ends the current chunk: nothing is appended to it any more.
    ///
    /// # Errors
    /// A failed write, which is fatal; only [`Error::DiskFull`] is not, and the call can be
    /// retried.
    pub fn end_chunk(&mut self, log: &EventLog) -> Result<()> {
        self.end_chunk_as(log, None)
    }

    /// Ends the current chunk, with this durable mark or with its own one.
    fn end_chunk_as(&mut self, log: &EventLog, mark: Option<u32>) -> Result<()> {
        self.try_end_chunk(mark).inspect_err(|error| {
            let is_open = |active: &ActiveChunk| active.seal.is_some() || active.writer.is_open();
            if !log.is_retryable(error) || !self.active.as_ref().is_none_or(is_open) {
                log.record_fatal_error(error);
            }
        })
    }

    fn try_end_chunk(&mut self, mark: Option<u32>) -> Result<()> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let (end, sealed) = match active.seal {
            Some(sealed) => sealed,
            None => {
                let end = active.writer.end();
                let seal = match mark {
                    Some(mark) => active.writer.seal_with_mark(mark)?,
                    None => active.writer.seal()?,
                };
                *active.seal.insert((end, seal))
            }
        };
        active.writer.progress().write_pending()?;
        let last_event = active.last_event;
        // A chunk without appends is removed; its end does not matter.
        let _ = active.chunk.ended.set(ChunkEnd { end, last_event, seal: Some(sealed) });
        self.active = None;
        Ok(())
    }

    /// Returns the start of the next append.
    /// REQUIRES: the chunk is not full.
    pub fn append_start(&self) -> Option<AppendStart> {
        let active = self.active.as_ref()?;
        let offset = active.writer.end() + RECORD_GAP_BYTES;
        Some(AppendStart {
            location: FrameLocation { chunk: active.chunk.id, offset },
            chunk_start: active.chunk.start,
            last_event: active.last_event,
        })
    }

    /// Appends the frames that were made for [`ChunkWriter::append_start`]. The last frame begins
    /// at the offset `last_event`. Returns the position after the record.
    pub fn append(&mut self, position: u64, payload: &[u8], last_event: u64) -> Result<u64> {
        let Some(active) = &mut self.active else {
            return Err(Error::invalid("internal: no active chunk to append to"));
        };
        let appended = active.writer.append(position, &[payload])?;
        active.last_event = last_event;
        active.chunk.set_end(appended.end, last_event);
        Ok(active.chunk.start + appended.end)
    }
}
