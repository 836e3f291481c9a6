//! Types that describe segments of the WAL, and tasks for them.

use std::ops::Range;
use std::sync::Arc;

use umbel_base::SequenceNumber;
use umbel_env::{File, Mapping, Prefaulter};
use umbel_log::{LogProgress, LogWriter, Seal};

/// A segment that no longer grows.
#[derive(Debug)]
pub struct OldSegment {
    /// Its id.
    pub id: u64,
    /// The newest sequence number in it.
    pub last_sequence: SequenceNumber,
    /// Its length in bytes.
    pub bytes: u64,
    /// Length of its file if it can be reused; 0 otherwise.
    pub reusable_bytes: u64,
    /// Its durable progress, and its end, until the manifest records the end.
    pub(super) unrecorded: Option<(Arc<LogProgress>, Seal)>,
}

/// The file of a segment that is no longer needed and that no edit names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecyclableSegment {
    /// The segment's id.
    pub id: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// A task for the WAL outside the commit lock.
#[derive(Debug)]
pub enum WalTask {
    /// Populate the pages below an offset.
    Populate(Arc<dyn Prefaulter>, u64),
    /// Start writing back a final range of a file, and evict it from the mapping if there is one.
    WriteBack(Arc<dyn File>, Option<Arc<dyn Prefaulter>>, Range<u64>),
    /// Drop mappings.
    Unmap(Vec<Box<dyn Mapping>>),
    /// Truncate a finished file to this length.
    Truncate(Arc<dyn File>, u64),
    /// Make a spare segment of this many bytes, from this file if there is one.
    CreateSpare(u64, Option<RecyclableSegment>),
}

/// Segments that an idle WAL releases.
#[derive(Debug, Default)]
pub struct ReclaimableSegments {
    /// Segments without records, which the manifest may name.
    pub spares: Vec<LogWriter>,
    /// A file that no edit names.
    pub reusable: Option<RecyclableSegment>,
}

/// Statistics of the WAL and its segments.
#[derive(Debug, Clone, Default)]
pub struct WalStats {
    /// Whether segments are mapped; `None` before the first one.
    pub is_mapped: Option<bool>,
    /// Reason why they are not mapped, if known.
    pub why_unmapped: Option<String>,
    /// Bytes prepared that hold no record yet.
    pub spare_bytes: u64,
    /// Segments made in new files.
    pub made: u64,
    /// Segments made in reused files.
    pub reused: u64,
    /// Segments that were made while a write waited.
    pub awaited: u64,
}

impl OldSegment {
    /// A segment that recovery has read and made durable.
    pub fn recovered(id: u64, last_sequence: SequenceNumber, bytes: u64) -> OldSegment {
        OldSegment { id, last_sequence, bytes, reusable_bytes: 0, unrecorded: None }
    }
}
