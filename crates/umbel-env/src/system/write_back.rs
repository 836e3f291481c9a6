//! Starts the write-back of dirty pages, before a thread waits for a sync.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "no crate of the table offers sync_file_range")
)]

use std::fs::File;
use std::ops::Range;

/// Starts the write-back of the dirty pages of these bytes, without waiting. Errors are left to the
/// next sync, to which the kernel reports every failed write since the file was opened.
#[cfg(target_os = "linux")]
pub(super) fn begin(file: &File, range: Range<u64>) {
    use std::os::fd::AsRawFd;
    let (start, len) = (range.start, range.end.saturating_sub(range.start));
    // A length of 0 would mean the rest of the file.
    if let (Ok(start), Ok(len)) = (i64::try_from(start), i64::try_from(len))
        && len > 0
    {
        // SAFETY: the call takes no pointer, and the descriptor is open while `file` is borrowed.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
}

/// Does nothing, since this platform has no call to start write-back.
#[cfg(not(target_os = "linux"))]
pub(super) fn begin(_file: &File, _range: Range<u64>) {}
