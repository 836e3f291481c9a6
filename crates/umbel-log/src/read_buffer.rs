//! [`ReadBuffer`]: a window on a file that moves forward, so that a long log is read in large
//! pieces and never as a whole.

use std::sync::Arc;

use umbel_base::Result;
use umbel_env::File;

/// Bytes of one read of the file.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;

/// A part of a file in memory.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    /// The file on which the window is.
    pub file: Arc<dyn File>,
    /// Offset at or after which nothing is read.
    pub limit: u64,
    start: u64,
    filled: usize,
    buffer: Vec<u8>,
}

impl ReadBuffer {
    /// Creates a window on the first `limit` bytes of `file`, with nothing read yet.
    /// REQUIRES: the file has at least `limit` bytes.
    pub fn new(file: Arc<dyn File>, limit: u64) -> ReadBuffer {
        ReadBuffer { file, limit, start: 0, filled: 0, buffer: Vec::new() }
    }

    /// Drops the buffered bytes, which a writer can have changed or truncated: the next call of
    /// [`ReadBuffer::get`] reads from the file.
    pub fn discard(&mut self) -> Result<()> {
        self.filled = 0;
        self.limit = self.limit.min(self.file.len()?);
        Ok(())
    }

    /// Number of bytes from `offset` on.
    #[inline]
    pub fn remaining(&self, offset: u64) -> u64 {
        self.limit.saturating_sub(offset)
    }

    /// Returns the `len` bytes from `offset` on, read from the file if they are not in the window.
    /// REQUIRES: `len <= self.remaining(offset)`, which bounds the allocation.
    #[inline]
    pub fn get(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        if offset < self.start || offset + len as u64 > self.start + self.filled as u64 {
            self.fill(offset, len)?;
        }
        Ok(self.filled_bytes(offset, len))
    }

    /// Returns bytes that an earlier [`ReadBuffer::get`] has read into the window.
    #[inline]
    pub fn filled_bytes(&self, offset: u64, len: usize) -> &[u8] {
        let at = (offset - self.start) as usize;
        &self.buffer[at..at + len]
    }

    /// Moves the window so that it begins at `offset` and has at least `len` bytes. Bytes that it
    /// has already are moved, not read again. If the file is shorter by now, the missing bytes are
    /// zeros.
    fn fill(&mut self, offset: u64, len: usize) -> Result<()> {
        let wanted = self.remaining(offset).min(CHUNK_BYTES.max(len as u64)) as usize;
        let held_end = self.start + self.filled as u64;
        let mut kept = 0;
        if (self.start..held_end).contains(&offset) {
            let at = (offset - self.start) as usize;
            kept = (self.filled - at).min(wanted);
            self.buffer.copy_within(at..at + kept, 0);
        }
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        self.start = offset;
        self.filled = kept;
        let read = self.file.read_at(&mut self.buffer[kept..wanted], offset + kept as u64)?;
        // A writer of another process that ends the log cuts off space that was never written.
        self.buffer[kept + read..wanted].fill(0);
        self.filled = wanted;
        Ok(())
    }
}
