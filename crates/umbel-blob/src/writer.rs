//! Writes a blob file.

use umbel_base::{BlobPointer, Error, Result, limits};
use umbel_env::File;

use crate::format::{
    CHUNK_BYTES, checksummed_header, chunk_checksum, chunks, file_bytes, header_checksum,
    value_offset,
};

/// Writes `value` as blob `id` into the empty file `file`, and syncs the file, but not its name.
/// Returns the pointer to the value.
///
/// # Errors
/// [`Error::Invalid`] if the value is empty or over the limit; [`Error::DiskFull`] if the disk has
/// no space for the value, before the first byte is written if the file system can reserve space.
/// After an error the file is useless.
pub fn write(file: &dyn File, id: u64, value: &[u8]) -> Result<BlobPointer> {
    let value_bytes = value.len() as u64;
    if value.is_empty() || value.len() > limits::VALUE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a value of {value_bytes} bytes gets no file of its own: it may have 1 to {} bytes",
            limits::VALUE_BYTES_MAX
        )));
    }
    file.preallocate(file_bytes(value_bytes))?;
    let start = value_offset(value_bytes);
    let mut head = Vec::with_capacity(start as usize);
    let covered = checksummed_header(id, value_bytes);
    head.extend_from_slice(&covered);
    let mut table = Vec::with_capacity(8 * chunks(value_bytes) as usize);
    let mut offset = start;
    for chunk in value.chunks(CHUNK_BYTES) {
        table.extend_from_slice(&chunk_checksum(id, offset, chunk).to_le_bytes());
        offset += chunk.len() as u64;
    }
    let checksum = header_checksum(id, &covered, &table);
    head.extend_from_slice(&checksum.to_le_bytes());
    head.extend_from_slice(&table);
    file.write_all_at(&head, 0)?;
    file.write_all_at(value, start)?;
    file.sync()?;
    Ok(BlobPointer { id, value_bytes, checksum })
}
