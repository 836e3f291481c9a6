//! Copies and checks the files of a backup block by block.

use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::{Access, Env, File};

use crate::backup::backup_manifest::{BLOCK_BYTES, BackupFile};
use crate::backup::copy_rate_limit::CopyThrottle;
use crate::event_log::chunk_manifest::ScavengedFile;
use crate::event_log::scavenged_chunk;
use crate::limits::FILE_BYTES_MAX;
use crate::types::error::Result;

/// Creates a folder and its missing parents, and makes their names durable.
pub fn create_directory(env: &Env, folder: &Path) -> Result<()> {
    let mut unsynced = vec![folder];
    let mut above = folder.parent();
    while let Some(path) = above.filter(|path| !path.as_os_str().is_empty()) {
        if env.files.exists(path)? {
            break;
        }
        unsynced.push(path);
        above = path.parent();
    }
    env.files.create_dir_all(folder)?;
    for path in unsynced {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        env.files.sync_dir(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Extends `file`, which has the source's first `file.len` bytes, to `end` bytes by copying the
/// source's bytes after them. Returns `false`, and writes nothing, if the last block before the new
/// bytes differs between the source and the copy.
pub fn copy_tail(
    (source, target): (&dyn File, &dyn File),
    id: u64,
    file: &mut BackupFile,
    end: u64,
    pace: &mut CopyThrottle<'_>,
) -> Result<bool> {
    let from = file.len;
    let mut at = from.saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
    let mut known = file.block_checksums.last().copied().filter(|_| from > 0);
    let mut buffer = Vec::new();
    while at < end {
        buffer.resize(BLOCK_BYTES.min(end - at) as usize, 0);
        source.read_exact_at(&mut buffer, at)?;
        let mut skipped = 0;
        if let Some(known) = known.take() {
            skipped = (from - at) as usize;
            if checksum(id, at, &buffer[..skipped]) != known {
                return Ok(false);
            }
            file.block_checksums.pop();
        }
        let new = &buffer[skipped..];
        if !new.is_empty() {
            target.write_all_at(new, at + skipped as u64)?;
            pace.record(new.len() as u64)?;
        }
        file.block_checksums.push(checksum(id, at, &buffer));
        at += buffer.len() as u64;
        file.len = at.max(from);
    }
    Ok(true)
}

/// Returns the checksums of the blocks of the first `len` bytes of a file.
///
/// # Errors
/// `Cancelled` if the caller requested the end, and errors of reads.
pub fn block_checksums(
    file: &dyn File,
    id: u64,
    len: u64,
    pace: &CopyThrottle<'_>,
) -> Result<Vec<u64>> {
    let (mut sums, mut buffer) = (Vec::new(), Vec::new());
    for at in (0..len).step_by(BLOCK_BYTES as usize) {
        pace.check()?;
        buffer.resize(BLOCK_BYTES.min(len - at) as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        sums.push(checksum(id, at, &buffer));
    }
    Ok(sums)
}

/// Reads the file of a scavenged chunk block by block, and compares it with the chunk manifest's
/// description.
///
/// # Errors
/// `Corruption` where the file differs, `Cancelled` if the caller requested the end, and errors of
/// reads.
pub fn verify_scavenged(
    file: &dyn File,
    id: u64,
    scavenged: &ScavengedFile,
    pace: &CopyThrottle<'_>,
) -> Result<()> {
    let mut bytes = vec![0; scavenged.file_bytes.min(FILE_BYTES_MAX) as usize];
    let mut at = 0;
    for block in bytes.chunks_mut(BLOCK_BYTES as usize) {
        pace.check()?;
        file.read_exact_at(block, at)?;
        at += block.len() as u64;
    }
    Ok(scavenged_chunk::verify_bytes(file, id, scavenged, &bytes)?)
}

/// Reads a file of a backup, checks every byte, and passes each block to the callback.
///
/// # Errors
/// `Corruption` with the file's name where it is missing, short or has other bytes.
pub fn check_file(
    env: &Env,
    path: &Path,
    id: u64,
    wanted: &BackupFile,
    mut hand_on: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let opened =
        env.files.open(path, Access::Read).map_err(|error| match error.is_missing_file() {
            true => umbel::Error::corruption(path, 0, "this file of the backup is missing"),
            false => error,
        });
    let file = opened?;
    let len = file.len()?;
    if len < wanted.len {
        let reason = format!(
            "the file ends here, but should have {} bytes by the manifest of the backup",
            wanted.len
        );
        return Err(umbel::Error::corruption(path, len, reason).into());
    }
    let mut buffer = Vec::new();
    for (number, sum) in wanted.block_checksums.iter().enumerate() {
        let at = number as u64 * BLOCK_BYTES;
        buffer.resize(BLOCK_BYTES.min(wanted.len - at) as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        if checksum(id, at, &buffer) != *sum {
            let reason = format!(
                "the {} bytes from here on differ from the bytes that were backed up",
                buffer.len()
            );
            return Err(umbel::Error::corruption(path, at, reason).into());
        }
        hand_on(&buffer, at)?;
    }
    Ok(())
}
