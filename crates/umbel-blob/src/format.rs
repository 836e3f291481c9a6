//! The format of blob files, which `docs/formats/blob.md` describes.

use umbel_base::checksum::{checksum, checksum_parts};

/// FORMAT: the first eight bytes of a blob file.
pub(crate) const MAGIC: [u8; 8] = *b"UmbelBlb";
/// FORMAT: the version that this build writes, which is also the newest that it reads.
pub(crate) const VERSION: u32 = 1;
/// FORMAT: bytes of the value that one checksum covers; the last chunk may be shorter.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// FORMAT: bytes of the header: magic, version `u32`, chunk bytes `u32`, file id `u64`, value
/// length `u64`, 24 zeros, checksum `u64`. The checksum covers the 56 bytes before it and the chunk
/// checksums after it.
pub(crate) const HEADER_BYTES: usize = 64;
/// Number of bytes of the header that its checksum covers.
pub(crate) const CHECKSUMMED_HEADER_BYTES: usize = HEADER_BYTES - 8;

/// Returns the number of chunks of a value of this length.
pub(crate) fn chunks(value_bytes: u64) -> u64 {
    value_bytes.div_ceil(CHUNK_BYTES as u64)
}

/// FORMAT: offset at which the value begins, after the header and a `u64` checksum for each chunk.
pub(crate) fn value_offset(value_bytes: u64) -> u64 {
    HEADER_BYTES as u64 + 8 * chunks(value_bytes)
}

/// Returns the length of the file of a value of this length.
pub fn file_bytes(value_bytes: u64) -> u64 {
    value_offset(value_bytes) + value_bytes
}

/// Returns the header without its checksum.
pub(crate) fn checksummed_header(id: u64, value_bytes: u64) -> [u8; CHECKSUMMED_HEADER_BYTES] {
    let mut bytes = [0; CHECKSUMMED_HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&id.to_le_bytes());
    bytes[24..32].copy_from_slice(&value_bytes.to_le_bytes());
    bytes
}

/// Returns the checksum over the header and over `table`, the checksums of the chunks.
pub(crate) fn header_checksum(id: u64, covered: &[u8], table: &[u8]) -> u64 {
    checksum_parts(id, 0, &[covered, table])
}

/// Returns the checksum of a chunk at `offset` of the file.
pub(crate) fn chunk_checksum(id: u64, offset: u64, chunk: &[u8]) -> u64 {
    checksum(id, offset, chunk)
}
