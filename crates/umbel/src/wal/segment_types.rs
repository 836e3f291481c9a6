//! Types that describe segments of the WAL, and tasks of the WAL.

use std::ops::Range;
use std::sync::Arc;

use umbel_base::SequenceNumber;
use umbel_env::{File, Mapping, Prefaulter};
use umbel_log::{LogProgress, LogWriter, Seal};

/// A segment of the WAL that does not grow any more.
#[derive(Debug)]
pub struct OldSegment {
    /// Id of the segment.
    pub id: u64,
    /// The newest sequence number in the segment.
    pub last_sequence: SequenceNumber,
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// Length of the segment's file if the file can be reused; 0 otherwise.
    pub reusable_bytes: u64,
    /// Progress of the segment's syncs, and its end; `None` after the manifest records the end.
    pub(super) unrecorded: Option<(Arc<LogProgress>, Seal)>,
}

/// The file of a segment that is no longer needed and that no edit names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecyclableSegment {
    /// Id of the segment to which the file belonged.
    pub id: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// A task for the WAL outside the commit lock.
#[derive(Debug)]
pub enum WalTask {
    /// Populate the pages below an offset.
    Populate(Arc<dyn Prefaulter>, u64),
    /// Start writing back a range of a file that does not change any more, and evict it from the
    /// mapping if the file is mapped.
    WriteBack(Arc<dyn File>, Option<Arc<dyn Prefaulter>>, Range<u64>),
    /// Unmap files.
    Unmap(Vec<Box<dyn Mapping>>),
    /// Truncate the file of an ended segment to this length.
    Truncate(Arc<dyn File>, u64),
    /// Make a spare segment of this many bytes, from the given file if there is one.
    CreateSpare(u64, Option<RecyclableSegment>),
}

/// Segments whose disk space an idle WAL frees.
#[derive(Debug, Default)]
pub struct ReclaimableSegments {
    /// Segments without records, which the manifest possibly names.
    pub spares: Vec<LogWriter>,
    /// A file of a dropped segment that no edit names.
    pub reusable: Option<RecyclableSegment>,
}

/// Statistics of the WAL and its segments.
#[derive(Debug, Clone, Default)]
pub struct WalStats {
    /// Whether segments are mapped; `None` before the first segment.
    pub is_mapped: Option<bool>,
    /// Reason why segments are not mapped, if known.
    pub why_unmapped: Option<String>,
    /// Prepared bytes that hold no record yet.
    pub spare_bytes: u64,
    /// Number of segments made in new files.
    pub made: u64,
    /// Number of segments made in reused files.
    pub reused: u64,
    /// Number of segments made while a write waited for the segment.
    pub awaited: u64,
}

impl OldSegment {
    /// Creates the description of a segment that recovery has read and that is durable.
    pub fn recovered(id: u64, last_sequence: SequenceNumber, bytes: u64) -> OldSegment {
        OldSegment { id, last_sequence, bytes, reusable_bytes: 0, unrecorded: None }
    }
}
