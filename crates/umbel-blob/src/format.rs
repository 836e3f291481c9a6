//! The bytes that writer and reader agree on: `docs/formats/blob.md` is the page for them.

use umbel_base::checksum::{checksum, checksum_parts};

/// FORMAT: the first eight bytes of a blob file.
pub(crate) const MAGIC: [u8; 8] = *b"UmbelBlb";
/// FORMAT: the version this build writes, and the newest it reads.
pub(crate) const VERSION: u32 = 1;
/// FORMAT: bytes of the value that one checksum covers; the last chunk may be shorter.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// FORMAT: magic, version `u32`, chunk bytes `u32`, file id `u64`, value length `u64`, 24 zeros,
/// checksum `u64` of the preceding 56 bytes and the following chunk checksums.
pub(crate) const HEADER_BYTES: usize = 64;
/// The bytes of the header that its checksum covers.
pub(crate) const CHECKSUMMED_HEADER_BYTES: usize = HEADER_BYTES - 8;

/// Number of chunks a value of this length has.
pub(crate) fn chunks(value_bytes: u64) -> u64 {
    value_bytes.div_ceil(CHUNK_BYTES as u64)
}

/// FORMAT: where the value begins: after the header and a `u64` for each chunk.
pub(crate) fn value_offset(value_bytes: u64) -> u64 {
    HEADER_BYTES as u64 + 8 * chunks(value_bytes)
}

/// Length of the file of a value of this length.
pub fn file_bytes(value_bytes: u64) -> u64 {
    value_offset(value_bytes) + value_bytes
}

/// The header but for its checksum.
pub(crate) fn checksummed_header(id: u64, value_bytes: u64) -> [u8; CHECKSUMMED_HEADER_BYTES] {
    let mut bytes = [0; CHECKSUMMED_HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&id.to_le_bytes());
    bytes[24..32].copy_from_slice(&value_bytes.to_le_bytes());
    bytes
}

/// The checksum of the header and the chunks' checksums, `table`.
pub(crate) fn header_checksum(id: u64, covered: &[u8], table: &[u8]) -> u64 {
    checksum_parts(id, 0, &[covered, table])
}

/// The checksum of the chunk that stands at `offset` of the file.
pub(crate) fn chunk_checksum(id: u64, offset: u64, chunk: &[u8]) -> u64 {
    checksum(id, offset, chunk)
}
