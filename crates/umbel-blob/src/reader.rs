//! Reads a blob file and checks every byte.

use std::sync::Arc;

use umbel_base::{BlobPointer, Decoder, Error, Result, limits};
use umbel_env::File;

use crate::format::{
    CHECKSUMMED_HEADER_BYTES, CHUNK_BYTES, HEADER_BYTES, MAGIC, VERSION, checksummed_header,
    chunk_checksum, chunks, file_bytes, header_checksum, value_offset,
};

/// Number of chunks in one read of the file: enough to make calls rare, and few enough that the
/// bytes are still in the CPU cache when they are checked.
const READ_CHUNKS: usize = 16;

/// Reads the value that `pointer` points at.
///
/// # Errors
/// As [`BlobReader::open`] and [`BlobReader::value`].
pub fn read(file: Arc<dyn File>, pointer: &BlobPointer) -> Result<Vec<u8>> {
    BlobReader::open(file, pointer)?.value()
}

/// An open blob file, whose header and chunk checksums were read and checked.
#[derive(Debug)]
pub struct BlobReader {
    file: Arc<dyn File>,
    pointer: BlobPointer,
    /// Checksums of the chunks, eight bytes for each.
    chunk_checksums: Vec<u8>,
}

impl BlobReader {
    /// Opens the file that `pointer` points at.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the file is damaged or is not the one that `pointer` points at;
    /// [`Error::Invalid`] if a newer version wrote the file.
    pub fn open(file: Arc<dyn File>, pointer: &BlobPointer) -> Result<BlobReader> {
        let blob = BlobReader::open_standalone(file, pointer.id)?;
        if blob.pointer != *pointer {
            let reason = format!(
                "the file holds a value of {} bytes that is not the one of {} bytes that was \
                 stored under its id: it was replaced",
                blob.pointer.value_bytes, pointer.value_bytes
            );
            return Err(Error::corruption(
                blob.file.path(),
                CHECKSUMMED_HEADER_BYTES as u64,
                reason,
            ));
        }
        Ok(blob)
    }

    /// Opens blob file `id` without a pointer to it, for tools.
    ///
    /// # Errors
    /// As [`BlobReader::open`].
    pub fn open_standalone(file: Arc<dyn File>, id: u64) -> Result<BlobReader> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let refuse = |offset, reason: &str| Error::corruption(file.path(), offset, reason);
        let (covered, sum) = header.split_at(CHECKSUMMED_HEADER_BYTES);
        let mut decoder = Decoder::new(covered);
        if decoder.array() != Some(MAGIC) {
            return Err(refuse(0, "it does not begin with the header of a blob file"));
        }
        let fields = (decoder.u32(), decoder.u32(), decoder.u64(), decoder.u64());
        let (Some(version), _, Some(found_id), Some(value_bytes)) = fields else {
            return Err(refuse(0, "the header ends too early"));
        };
        if found_id != id || !(1..=limits::VALUE_BYTES_MAX as u64).contains(&value_bytes) {
            return Err(refuse(0, "the header is damaged or is that of another file"));
        }
        // No memory is reserved before the file was seen to be as long as it says.
        let (found, expected) = (file.len()?, file_bytes(value_bytes));
        if found != expected {
            let reason = format!("the file has {found} bytes, but its value needs {expected}");
            return Err(refuse(found.min(expected), &reason));
        }
        let mut table = vec![0; 8 * chunks(value_bytes) as usize];
        file.read_exact_at(&mut table, HEADER_BYTES as u64)?;
        let checksum = header_checksum(id, covered, &table);
        if checksum.to_le_bytes() != sum {
            return Err(refuse(
                0,
                "the checksum of the header and of the chunks' checksums does not match",
            ));
        }
        if version > VERSION {
            return Err(Error::invalid(format!(
                "{} has format version {version}, but this Umbel reads up to {VERSION}; read it \
                 with a newer Umbel",
                file.path().display()
            )));
        }
        if covered != checksummed_header(id, value_bytes) {
            return Err(refuse(0, "the header has values that no Umbel writes"));
        }
        let pointer = BlobPointer { id, value_bytes, checksum };
        Ok(BlobReader { file, pointer, chunk_checksums: table })
    }

    /// Returns the pointer to the value.
    pub fn pointer(&self) -> &BlobPointer {
        &self.pointer
    }

    /// Reads the whole value.
    ///
    /// # Errors
    /// [`Error::Corruption`] with the offset of the first damaged chunk; the file's error if a read
    /// fails.
    pub fn value(&self) -> Result<Vec<u8>> {
        let mut value = vec![0; self.pointer.value_bytes as usize];
        let mut offset = value_offset(self.pointer.value_bytes);
        for (number, piece) in value.chunks_mut(READ_CHUNKS * CHUNK_BYTES).enumerate() {
            self.read_piece(number * READ_CHUNKS, offset, piece)?;
            offset += piece.len() as u64;
        }
        Ok(value)
    }

    /// Reads and checks every byte of the value, without keeping the value in memory.
    ///
    /// # Errors
    /// As [`BlobReader::value`].
    pub fn verify(&self) -> Result<()> {
        let mut left = self.pointer.value_bytes as usize;
        let mut offset = value_offset(self.pointer.value_bytes);
        let mut piece = vec![0; left.min(READ_CHUNKS * CHUNK_BYTES)];
        let mut number = 0;
        while left > 0 {
            piece.truncate(left);
            self.read_piece(number, offset, &mut piece)?;
            left -= piece.len();
            offset += piece.len() as u64;
            number += READ_CHUNKS;
        }
        Ok(())
    }

    /// Fills `piece`, which begins with chunk `first` at `offset` of the file.
    fn read_piece(&self, first: usize, offset: u64, piece: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(piece, offset)?;
        let sums = self.chunk_checksums.as_chunks::<8>().0.iter().skip(first);
        let mut at = offset;
        for (chunk, sum) in piece.chunks(CHUNK_BYTES).zip(sums) {
            if chunk_checksum(self.pointer.id, at, chunk) != u64::from_le_bytes(*sum) {
                let reason = "the checksum of the chunk that starts here does not match its bytes";
                return Err(Error::corruption(self.file.path(), at, reason));
            }
            at += chunk.len() as u64;
        }
        Ok(())
    }
}
