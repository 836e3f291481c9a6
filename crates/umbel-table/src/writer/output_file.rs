//! The file that a table is written to: gathers what is written into pieces, and writes them past
//! the page cache where that is wanted and the file system allows it.
//!
//! A table that fits into one piece is written through the page cache: it is small, and likely to
//! be read soon. INVARIANT: pieces stand one behind the other and all but the last are full, so
//! that direct writes stay aligned.

use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{AlignedBuffer, File};

/// How many bytes are gathered, unless said otherwise.
const PIECE_BYTES: usize = 256 * 1024;

/// How pieces get to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// None was written yet.
    Untried,
    Direct,
    Buffered,
}

/// The file behind a buffer.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: Arc<dyn File>,
    piece: AlignedBuffer,
    written: u64,
    /// How long the file is expected to become; 0 where nobody knows.
    expected: u64,
    /// Whether the file may be longer than what was put into it.
    is_longer: bool,
    way: Way,
}

impl OutputFile {
    /// An output to `file`, which is empty, that begins with `header`.
    pub(crate) fn new(file: Arc<dyn File>, header: &[u8]) -> OutputFile {
        let mut piece = AlignedBuffer::new(PIECE_BYTES);
        piece.fill(header);
        OutputFile { file, piece, written: 0, expected: 0, is_longer: false, way: Way::Untried }
    }

    /// Sets the size of a piece, how long the file is expected to become and whether to write it
    /// past the page cache. REQUIRES: nothing was pushed yet.
    pub(crate) fn set_pieces(&mut self, piece_bytes: usize, expected: u64, direct: bool) {
        self.way = if direct { Way::Untried } else { Way::Buffered };
        let header = std::mem::replace(&mut self.piece, AlignedBuffer::new(piece_bytes));
        self.piece.fill(header.bytes());
        self.expected = expected;
    }

    /// Where the next byte will stand.
    pub(crate) fn end(&self) -> u64 {
        self.written + self.piece.len() as u64
    }

    /// Whether the file is written past the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.way == Way::Direct
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

    /// Writes a full piece.
    fn write_piece(&mut self) -> Result<()> {
        if self.way != Way::Buffered {
            let done = self.file.write_direct(self.piece.bytes(), self.written)?;
            let was =
                std::mem::replace(&mut self.way, if done { Way::Direct } else { Way::Buffered });
            if done && was == Way::Untried {
                self.reserve()?;
            }
        }
        if self.way == Way::Buffered {
            self.file.write_all_at(self.piece.bytes(), self.written)?;
            // The device works while the next piece is made.
            self.file.write_back(self.written..self.written + self.piece.len() as u64);
        }
        self.written += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// Asks for the space at once, so that the file lies together. Where there is not so much the
    /// writes themselves find out whether there is enough.
    fn reserve(&mut self) -> Result<()> {
        if self.expected <= self.piece.capacity() as u64 {
            return Ok(());
        }
        self.is_longer = true;
        match self.file.preallocate(self.expected) {
            Err(Error::Full { .. }) => Ok(()),
            reserved => reserved,
        }
    }

    /// Writes what is left, gives the file its length and syncs it.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let end = self.end();
        let left = self.piece.len();
        let mut done = left == 0;
        if !done && self.way == Way::Direct {
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
