//! Copying the files of a backup block by block, checking them, and how fast that goes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use umbel_base::checksum::checksum;
use umbel_env::{Access, Clock, Env, File, Threads};

use crate::backup_manifest::{BLOCK_BYTES, BackupFile};
use crate::error::Result;

/// How far a backup, a restore or the check of a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes copied or checked.
    pub bytes: u64,
    /// How many there will be at the end.
    pub total_bytes: u64,
}

/// How a backup, a restore or the check of a backup goes on.
#[derive(Default)]
pub struct CopyOptions<'a> {
    /// The most bytes a second that are copied or checked; as fast as it goes without.
    pub bytes_per_second: Option<u64>,
    /// How long a backup or a restore waits while another one uses its folder, before it is refused
    /// with `Locked`. Zero, the default, does not wait.
    pub lock_wait: Duration,
    /// Is called after each block of at most 1 MiB.
    pub progress: Option<&'a mut dyn FnMut(CopyProgress)>,
}

impl fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions")
            .field("bytes_per_second", &self.bytes_per_second)
            .field("lock_wait", &self.lock_wait)
            .finish_non_exhaustive()
    }
}

/// Keeps to the rate and tells how far it is.
pub struct Pace<'a> {
    options: CopyOptions<'a>,
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Threads>,
    started: Duration,
    done: CopyProgress,
}

impl<'a> Pace<'a> {
    /// Begins with work of so many bytes.
    pub fn begin(env: &Env, options: CopyOptions<'a>, total_bytes: u64) -> Pace<'a> {
        let (clock, threads) = (Arc::clone(&env.clock), Arc::clone(&env.threads));
        let started = clock.now();
        let done = CopyProgress { bytes: 0, total_bytes };
        Pace { options, clock, threads, started, done }
    }

    /// Notes that so many bytes were done, and waits where that was too fast.
    pub fn did(&mut self, bytes: u64) {
        self.done.bytes += bytes;
        if let Some(progress) = &mut self.options.progress {
            progress(self.done);
        }
        let Some(rate) = self.options.bytes_per_second else { return };
        let due = Duration::from_secs_f64(self.done.bytes as f64 / rate.max(1) as f64);
        let elapsed = self.clock.now().saturating_sub(self.started);
        if let Some(left) = due.checked_sub(elapsed).filter(|left| !left.is_zero()) {
            self.threads.pause(left);
        }
    }
}

/// Makes a folder and those above it that are missing, with their names durable.
pub fn make_folder(env: &Env, folder: &Path) -> Result<()> {
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

/// Makes `file`, of which the target holds the first `file.len` bytes, `end` bytes long, with what
/// the source has behind those. `false` where the source has other bytes before them, of which the
/// last block is looked at; then nothing was written.
pub fn copy_behind(
    (source, target): (&dyn File, &dyn File),
    id: u64,
    file: &mut BackupFile,
    end: u64,
    pace: &mut Pace<'_>,
) -> Result<bool> {
    let from = file.len;
    let mut at = from.saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
    let mut known = file.blocks.last().copied().filter(|_| from > 0);
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
            file.blocks.pop();
        }
        let new = &buffer[skipped..];
        if !new.is_empty() {
            target.write_all_at(new, at + skipped as u64)?;
            pace.did(new.len() as u64);
        }
        file.blocks.push(checksum(id, at, &buffer));
        at += buffer.len() as u64;
        file.len = at.max(from);
    }
    Ok(true)
}

/// The checksums of the blocks of the first `len` bytes of a file.
pub fn block_sums(file: &dyn File, id: u64, len: u64) -> Result<Vec<u64>> {
    let (mut sums, mut buffer) = (Vec::new(), Vec::new());
    for at in (0..len).step_by(BLOCK_BYTES as usize) {
        buffer.resize(BLOCK_BYTES.min(len - at) as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        sums.push(checksum(id, at, &buffer));
    }
    Ok(sums)
}

/// Reads a file of a backup and checks every byte of it, handing each block on.
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
        let reason = format!("the file ends here, but the backup has {} bytes of it", wanted.len);
        return Err(umbel::Error::corruption(path, len, reason).into());
    }
    let mut buffer = Vec::new();
    for (number, sum) in wanted.blocks.iter().enumerate() {
        let at = number as u64 * BLOCK_BYTES;
        buffer.resize(BLOCK_BYTES.min(wanted.len - at) as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        if checksum(id, at, &buffer) != *sum {
            let reason = format!(
                "the {} bytes from here on are not those that were backed up",
                buffer.len()
            );
            return Err(umbel::Error::corruption(path, at, reason).into());
        }
        hand_on(&buffer, at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_to_and_progress_is_told() {
        let env = Env::system();
        let mut told = Vec::new();
        let mut note = |progress: CopyProgress| told.push(progress.bytes);
        let options = CopyOptions {
            bytes_per_second: Some(10_000),
            progress: Some(&mut note),
            ..CopyOptions::default()
        };
        let started = env.clock.now();
        let mut pace = Pace::begin(&env, options, 3000);
        (0..3).for_each(|_| pace.did(1000));
        let elapsed = env.clock.now().saturating_sub(started);
        assert!(elapsed >= Duration::from_millis(290), "{elapsed:?}");
        assert_eq!(told, [1000, 2000, 3000]);
    }
}
