//! Blob files from mutated parts, with right checksums.
//!
//! FORMAT: `docs/formats/blob.md`. This code follows that page and does not use `umbel_blob`.

use umbel_base::checksum::{checksum, checksum_parts};

use crate::structured_input::Parts;

/// The id every assembled file has.
pub const FILE_ID: u64 = 7;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 65_536;

/// Returns a blob file that an input describes. The input has the deviations of header and first
/// checksums from those of the value, the number of repetitions of the value, then the value.
pub fn assemble(mut parts: Parts<'_>) -> Vec<u8> {
    let version = parts.number::<1>() as u32;
    let chunk_bytes = parts.number::<4>() as u32;
    let longer = parts.number::<1>();
    let zeros = parts.number::<3>();
    let sums_off = parts.number::<2>();
    let times = parts.number::<2>() as usize;
    let value = parts.rest().repeat(times + 1);
    // An input describes only deviations, so that an empty one gives a valid header.
    let mut header = b"UmbelBlb".to_vec();
    header.extend_from_slice(&(1 ^ version).to_le_bytes());
    header.extend_from_slice(&(CHUNK_BYTES as u32 ^ chunk_bytes).to_le_bytes());
    header.extend_from_slice(&FILE_ID.to_le_bytes());
    header.extend_from_slice(&(value.len() as u64).wrapping_add(longer).to_le_bytes());
    header.extend_from_slice(&zeros.to_le_bytes());
    header.resize(56, 0);
    let start = 64 + 8 * value.len().div_ceil(CHUNK_BYTES);
    let mut sums = Vec::new();
    for (number, chunk) in value.chunks(CHUNK_BYTES).enumerate() {
        let at = (start + number * CHUNK_BYTES) as u64;
        let off = if number == 0 { sums_off } else { 0 };
        sums.extend_from_slice(&(checksum(FILE_ID, at, chunk) ^ off).to_le_bytes());
    }
    let sum = checksum_parts(FILE_ID, 0, &[&header, &sums]);
    [&header[..], &sum.to_le_bytes(), &sums, &value].concat()
}
