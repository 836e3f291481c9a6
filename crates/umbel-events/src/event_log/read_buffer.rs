//! [`Window`]: a piece of a chunk in memory.

use std::sync::Arc;

use umbel_env::File;

use crate::chunk::Chunk;

/// A piece of a chunk in memory.
#[derive(Debug, Default)]
pub struct Window {
    /// Which chunk, and its file.
    pub chunk: Option<(Arc<Chunk>, Arc<dyn File>)>,
    /// The offset at which the piece begins.
    pub start: u64,
    /// The piece.
    pub buffer: Vec<u8>,
}

impl Window {
    /// Whether it is a piece of this file of the chunk.
    pub fn is_of(&self, chunk: &Chunk) -> bool {
        let held = self.chunk.as_ref();
        held.is_some_and(|(held, _)| held.id == chunk.id && held.version() == chunk.version())
    }

    /// The bytes from `offset` on. REQUIRES: it holds them.
    pub fn from(&self, offset: u64) -> &[u8] {
        &self.buffer[(offset - self.start) as usize..]
    }

    /// Whether these bytes of a chunk are in it.
    pub fn holds(&self, chunk: &Chunk, offset: u64, len: usize) -> bool {
        let is_same = self.is_of(chunk);
        let end = self.start + self.buffer.len() as u64;
        is_same && offset >= self.start && offset + len as u64 <= end
    }
}
