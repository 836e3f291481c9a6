//! Download of a piece, with all its checksums verified.

use umbel_base::checksum::checksum;
use umbel_env::{File, ObjectName};

use crate::backup_error::{BackupError, BackupResult};
use crate::manifest::ManifestContents;
use crate::object_requests::ObjectRequests;
use crate::piece::{BLOCK_BYTES, Piece, SourceFile, decode_trailer, trailer_bytes};

/// Reads of a range whose bytes do not match, before they count as damage.
const READS_MAX: usize = 3;
/// Blocks of one read. A read of 1 MiB waits longer for its answer than for its bytes.
const BLOCKS_PER_READ: usize = 8;

/// Calls `write` with the bytes of a piece in order, at most 8 MiB at a time, and their offset in
/// the store's file.
///
/// # Errors
/// Damage, with the name of the object: it is missing, or has other bytes.
pub fn download<C: ManifestContents>(
    requests: &ObjectRequests,
    backup: &[u8; 16],
    (file, piece): (SourceFile, &Piece),
    mut write: impl FnMut(&[u8], u64) -> BackupResult<()>,
) -> BackupResult<()> {
    let name = C::name(file, piece);
    let body = piece.to - piece.from;
    let trailer = trailer_bytes(body);
    // A small piece is one read.
    let at = if body < BLOCK_BYTES { 0 } else { body };
    let (head, sums) = read_checked(requests, &name, (at, body + trailer), |bytes| {
        let trailer = bytes.get((body - at) as usize..).unwrap_or_default();
        decode_trailer(trailer, piece, (C::KIND, backup, file))
    })?;
    for (number, sums) in sums.chunks(BLOCKS_PER_READ).enumerate() {
        let from = (number * BLOCKS_PER_READ) as u64 * BLOCK_BYTES;
        let to = body.min(from + sums.len() as u64 * BLOCK_BYTES);
        let check = |bytes: &[u8]| {
            let mut blocks = bytes.chunks(BLOCK_BYTES as usize).zip(sums).enumerate();
            let is_right = |(number, (block, sum)): (usize, (&[u8], &u64))| {
                let offset = piece.from + from + number as u64 * BLOCK_BYTES;
                checksum(file.id, offset, block) == *sum
            };
            match bytes.len() as u64 == to - from && blocks.all(is_right) {
                true => Ok(()),
                false => Err("its bytes differ from those that were backed up"),
            }
        };
        match at {
            0 => {
                let bytes = head.get(..to as usize).unwrap_or_default();
                check(bytes).map_err(|reason| damaged_piece(requests, &name, reason))?;
                write(bytes, piece.from)?;
            }
            _ => {
                let (bytes, ()) = read_checked(requests, &name, (from, to), check)?;
                write(&bytes, piece.from + from)?;
            }
        }
    }
    Ok(())
}

/// Writes the bytes of a piece to a file at their offset in the store's file, and starts their
/// write-back, so that a later [`File::sync`] waits less.
///
/// # Errors
/// Those of [`download`], and a failed write.
pub fn download_to_file<C: ManifestContents>(
    requests: &ObjectRequests,
    backup: &[u8; 16],
    piece: (SourceFile, &Piece),
    target: &dyn File,
) -> BackupResult<()> {
    download::<C>(requests, backup, piece, |bytes, at| {
        target.write_all_at(bytes, at)?;
        target.write_back(at..at + bytes.len() as u64);
        Ok(())
    })
}

/// Reads the checksums of the blocks of a piece.
///
/// # Errors
/// Damage, with the name of the object: it is missing, or has other bytes.
pub fn read_block_checksums<C: ManifestContents>(
    requests: &ObjectRequests,
    backup: &[u8; 16],
    (file, piece): (SourceFile, &Piece),
) -> BackupResult<Vec<u64>> {
    let body = piece.to - piece.from;
    let range = (body, body + trailer_bytes(body));
    let (_, sums) = read_checked(requests, &C::name(file, piece), range, |bytes| {
        decode_trailer(bytes, piece, (C::KIND, backup, file))
    })?;
    Ok(sums)
}

/// Reads a range of an object until `check` accepts the bytes.
fn read_checked<T>(
    requests: &ObjectRequests,
    name: &ObjectName,
    (from, to): (u64, u64),
    check: impl Fn(&[u8]) -> Result<T, &'static str>,
) -> BackupResult<(Vec<u8>, T)> {
    let mut reason = "";
    for _ in 0..READS_MAX {
        let Some(read) = requests.read(name, from..to)? else {
            return Err(damaged_piece(requests, name, "the object is missing"));
        };
        match read.bytes.len() as u64 == to - from {
            true => match check(&read.bytes) {
                Ok(value) => return Ok((read.bytes, value)),
                Err(found) => reason = found,
            },
            false => reason = "it is shorter than the object that was written",
        }
    }
    Err(damaged_piece(requests, name, reason))
}

/// Returns the error for a missing piece, or for one with wrong bytes.
fn damaged_piece(requests: &ObjectRequests, name: &ObjectName, reason: &str) -> BackupError {
    let advice = "restore it from a version or a copy, or restore a state that does not need it";
    requests.damaged(name, format!("{reason}; {advice}"))
}
