//! Files out of the kernel's page cache, so that an open reads them from their device.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::disk::{listing, sync_all};
use crate::engine::Result;

/// Syncs every file below a folder and asks the kernel to forget what it holds of them.
///
/// # Errors
/// What the operating system refused.
pub fn forget(folder: &Path) -> Result<()> {
    sync_all(folder)?;
    for (path, _, _) in listing(folder)? {
        fadvise(&File::open(&path)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Bytes that this process had read from devices so far; `None` where the kernel does not say.
pub fn read_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// Does some work and says why it does not count as one with a cold cache: nothing was read from a
/// device.
///
/// # Errors
/// Those of the work.
pub fn cold<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<String>)> {
    let before = read_bytes();
    let done = work()?;
    let read = read_bytes().zip(before).map(|(after, before)| after - before);
    let warm = "the page cache could not be emptied: nothing was read from a device".to_string();
    Ok((done, if read == Some(0) { vec![warm] } else { Vec::new() }))
}
