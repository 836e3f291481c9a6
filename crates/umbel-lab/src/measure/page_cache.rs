//! Evicts files from the kernel's page cache, so that an open reads them from the device.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::engine::Result;
use crate::measure::disk_usage::{listing, sync_all};

/// Syncs every file below a folder and makes the kernel evict the files' pages.
///
/// # Errors
/// The error of the operating system.
pub fn evict(folder: &Path) -> Result<()> {
    sync_all(folder)?;
    for (path, _, _) in listing(folder)? {
        fadvise(&File::open(&path)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Returns the bytes that this process has read from devices; `None` if the kernel has no count.
pub fn read_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// Runs some work with a cold cache. Returns a flag if nothing was read from a device, since the
/// cache was not cold then.
///
/// # Errors
/// The errors of the work.
pub fn run_cold<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<String>)> {
    let before = read_bytes();
    let done = work()?;
    let read = read_bytes().zip(before).map(|(after, before)| after - before);
    let warm = "the page cache could not be emptied: nothing was read from a device".to_string();
    Ok((done, if read == Some(0) { vec![warm] } else { Vec::new() }))
}
