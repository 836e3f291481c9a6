//! Direct I/O: whether a file currently bypasses the page cache.
//!
//! The first direct write switches a descriptor to direct I/O. Another kind of access, which need
//! not be aligned, switches it back. A file system can refuse the switch or the first write; the
//! handle then does not try again.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::aligned_buffer::DIRECT_ALIGNMENT;

const OFF: u8 = 0;
const ON: u8 = 1;
const REFUSED: u8 = 2;

/// Whether a file is in direct mode now, or refused the mode.
#[derive(Debug, Default)]
pub(super) struct DirectMode(AtomicU8);

impl DirectMode {
    /// Switches the file to direct writes. Returns `false` if the file system refuses.
    pub(super) fn enter(&self, file: &File) -> bool {
        match self.0.load(Ordering::Acquire) {
            ON => true,
            OFF if switch(file, true) => {
                self.0.store(ON, Ordering::Release);
                true
            }
            _ => {
                self.0.store(REFUSED, Ordering::Release);
                false
            }
        }
    }

    /// Switches the file back to the page cache if it is in direct mode.
    #[inline]
    pub(super) fn leave(&self, file: &File) {
        if self.0.load(Ordering::Acquire) == ON && switch(file, false) {
            self.0.store(OFF, Ordering::Release);
        }
    }

    /// Switches the file back to the page cache permanently.
    pub(super) fn refuse(&self, file: &File) {
        self.leave(file);
        self.0.store(REFUSED, Ordering::Release);
    }
}

/// Whether these bytes can be written directly.
pub(super) fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    let alignment = DIRECT_ALIGNMENT;
    bytes.as_ptr().addr().is_multiple_of(alignment)
        && bytes.len().is_multiple_of(alignment)
        && offset.is_multiple_of(alignment as u64)
}

/// Whether an error says that the file system does not support direct writes, or not with this
/// alignment.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn switch(file: &File, on: bool) -> bool {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let Ok(mut flags) = fcntl_getfl(file) else { return false };
    flags.set(OFlags::DIRECT, on);
    fcntl_setfl(file, flags).is_ok()
}

/// This platform has no direct mode.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn switch(_file: &File, _on: bool) -> bool {
    false
}
