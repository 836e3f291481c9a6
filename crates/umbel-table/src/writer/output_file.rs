//! The output file of a table: collects bytes into chunks, and writes the chunks past the page
//! cache if requested and possible.
//!
//! A table that fits into one chunk is written through the page cache, since it is small and
//! probably read soon. INVARIANT: chunks follow each other in the file and all except the last are
//! full, so that direct writes stay aligned.

use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{AlignedBuffer, File};

/// Default number of bytes of a chunk.
const PIECE_BYTES: usize = 256 * 1024;

/// Mode in which chunks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// No chunk was written yet.
    Undecided,
    Direct,
    Buffered,
}

/// A file that is written through a buffer.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: Arc<dyn File>,
    piece: AlignedBuffer,
    written: u64,
    /// Expected length of the file; 0 if unknown.
    expected: u64,
    /// Whether the file is possibly longer than the written bytes.
    is_longer: bool,
    mode: WriteMode,
}

impl OutputFile {
    /// Creates an output to the empty file `file`, which begins with `header`.
    pub(crate) fn new(file: Arc<dyn File>, header: &[u8]) -> OutputFile {
        let mut piece = AlignedBuffer::new(PIECE_BYTES);
        piece.fill(header);
        OutputFile {
            file,
            piece,
            written: 0,
            expected: 0,
            is_longer: false,
            mode: WriteMode::Undecided,
        }
    }

    /// Sets the bytes of a chunk, the expected length of the file, and whether it is written past
    /// the page cache. REQUIRES: no bytes were pushed yet.
    pub(crate) fn set_chunk_size(&mut self, piece_bytes: usize, expected: u64, direct: bool) {
        self.mode = if direct { WriteMode::Undecided } else { WriteMode::Buffered };
        let header = std::mem::replace(&mut self.piece, AlignedBuffer::new(piece_bytes));
        self.piece.fill(header.bytes());
        self.expected = expected;
    }

    /// Offset in the file of the next pushed byte.
    pub(crate) fn end(&self) -> u64 {
        self.written + self.piece.len() as u64
    }

    /// Whether the file is written past the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.mode == WriteMode::Direct
    }

    /// Appends `bytes`.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let taken = self.piece.fill(bytes);
            bytes = &bytes[taken..];
            if self.piece.len() == self.piece.capacity() {
                self.write_piece()?;
            }
        }
        Ok(())
    }

    /// Writes a full chunk.
    fn write_piece(&mut self) -> Result<()> {
        if self.mode != WriteMode::Buffered {
            let done = self.file.write_direct(self.piece.bytes(), self.written)?;
            let was = std::mem::replace(
                &mut self.mode,
                if done { WriteMode::Direct } else { WriteMode::Buffered },
            );
            if done && was == WriteMode::Undecided {
                self.reserve()?;
            }
        }
        if self.mode == WriteMode::Buffered {
            self.file.write_all_at(self.piece.bytes(), self.written)?;
            // The device works while the next piece is made.
            self.file.write_back(self.written..self.written + self.piece.len() as u64);
        }
        self.written += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// Reserves disk space for the expected length, so that the file is contiguous. A failed
    /// reservation is ignored, since the writes themselves find out whether there is enough space.
    fn reserve(&mut self) -> Result<()> {
        if self.expected <= self.piece.capacity() as u64 {
            return Ok(());
        }
        self.is_longer = true;
        match self.file.preallocate(self.expected) {
            Err(Error::DiskFull { .. }) => Ok(()),
            reserved => reserved,
        }
    }

    /// Writes the remaining bytes, sets the file's length and syncs the file.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let end = self.end();
        let left = self.piece.len();
        let mut done = left == 0;
        if !done && self.mode == WriteMode::Direct {
            self.piece.pad();
            done = self.file.write_direct(self.piece.bytes(), self.written)?;
            self.is_longer |= done && self.piece.len() > left;
        }
        if !done {
            self.file.write_all_at(&self.piece.bytes()[..left], self.written)?;
        }
        if self.is_longer {
            self.file.set_len(end)?;
        }
        self.written = end;
        self.piece.clear();
        self.file.sync()
    }
}
