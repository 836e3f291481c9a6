//! Bugs to switch on inside the engine, so that the campaigns can prove that they find them.
//!
//! Only there with the feature `canary`, which nothing that users get turns on.

use std::sync::atomic::{AtomicU8, Ordering};

static ON: AtomicU8 = AtomicU8::new(0);

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Switch {
    /// Every checksum is the same number.
    IgnoredChecksum = 1,
    /// Compaction drops tombstones above the bottom.
    TombstonesDroppedEarly = 2,
    /// Recovery gives sequence numbers out again.
    ReusedSequence = 4,
    /// Recovery gives file ids out again.
    ReusedFileId = 8,
    /// Compaction does not ask for snapshots.
    SnapshotsForgotten = 16,
    /// The file of a long value goes while somebody may still look at it.
    BlobRemovedEarly = 32,
}

impl Switch {
    /// Plants the bug, in the whole process.
    pub fn turn_on(self) {
        ON.fetch_or(self as u8, Ordering::Relaxed);
    }

    /// Whether it is planted.
    pub fn is_on(self) -> bool {
        ON.load(Ordering::Relaxed) & self as u8 != 0
    }
}

/// Takes every bug out.
pub fn turn_all_off() {
    ON.store(0, Ordering::Relaxed);
}
