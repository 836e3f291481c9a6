//! [`ReadBuffer`]: a range of a chunk's file in memory.

use std::sync::Arc;

use umbel_env::File;

use crate::event_log::chunk::Chunk;

/// A range of a chunk's file in memory.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    /// The chunk and its file.
    pub chunk: Option<(Arc<Chunk>, Arc<dyn File>)>,
    /// Offset at which the range begins.
    pub start: u64,
    /// Bytes of the range.
    pub buffer: Vec<u8>,
}

impl ReadBuffer {
    /// Whether the range is of this file of the chunk.
    pub fn is_of_chunk(&self, chunk: &Chunk) -> bool {
        let held = self.chunk.as_ref();
        held.is_some_and(|(held, _)| held.id == chunk.id && held.version() == chunk.version())
    }

    /// Returns the bytes from `offset` on. REQUIRES: the buffer holds them.
    pub fn bytes_from(&self, offset: u64) -> &[u8] {
        &self.buffer[(offset - self.start) as usize..]
    }

    /// Whether the buffer holds these bytes of a chunk.
    pub fn contains(&self, chunk: &Chunk, offset: u64, len: usize) -> bool {
        let is_same = self.is_of_chunk(chunk);
        let end = self.start + self.buffer.len() as u64;
        is_same && offset >= self.start && offset + len as u64 <= end
    }
}
