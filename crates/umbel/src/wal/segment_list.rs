//! What the log says of its segments, and what is to be done for them.

use std::ops::Range;
use std::sync::Arc;

use umbel_base::SequenceNumber;
use umbel_env::{File, Mapping, Populator};
use umbel_log::{LogProgress, LogWriter, Sealed};

/// A segment that no longer grows.
#[derive(Debug)]
pub struct OldSegment {
    /// Its id.
    pub id: u64,
    /// The newest sequence number in it.
    pub last_sequence: SequenceNumber,
    /// Its length in bytes.
    pub bytes: u64,
    /// How long its file is where it can be used again; 0 where it cannot.
    pub reusable_bytes: u64,
    /// How far it is durable, and where it ends, until the manifest knows that.
    pub(super) unrecorded: Option<(Arc<LogProgress>, Sealed)>,
}

/// The file of a log that nobody needs and no edit names any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reusable {
    /// The log's id.
    pub id: u64,
    /// How long the file is.
    pub bytes: u64,
}

/// Something to be done for the log outside the commit lock.
#[derive(Debug)]
pub enum Chore {
    /// Make the pages below an offset ready.
    Populate(Arc<dyn Populator>, u64),
    /// Begin to write back what will not change any more, out of the mapping where there is one.
    WriteBack(Arc<dyn File>, Option<Arc<dyn Populator>>, Range<u64>),
    /// Give mappings back.
    Unmap(Vec<Box<dyn Mapping>>),
    /// Cut a file that is written no more to this length.
    Cut(Arc<dyn File>, u64),
    /// Make a spare segment of so many bytes, out of this file where there is one.
    Make(u64, Option<Reusable>),
}

/// What a log at rest gives back.
#[derive(Debug, Default)]
pub struct Surplus {
    /// Segments without a record, which the manifest may name.
    pub spares: Vec<LogWriter>,
    /// A file that no edit names.
    pub reusable: Option<Reusable>,
}

/// How the log is written, and what became of its segments.
#[derive(Debug, Clone, Default)]
pub struct LogShape {
    /// Whether segments are mapped; `None` before the first one.
    pub is_mapped: Option<bool>,
    /// Why not, where it is known.
    pub why_unmapped: Option<String>,
    /// Bytes made ready that hold no record yet.
    pub spare_bytes: u64,
    /// Segments made in new files.
    pub made: u64,
    /// Segments made in files of earlier ones.
    pub reused: u64,
    /// Segments that had to be made while a write waited.
    pub waited: u64,
}

impl OldSegment {
    /// A segment that recovery has read and made durable.
    pub fn recovered(id: u64, last_sequence: SequenceNumber, bytes: u64) -> OldSegment {
        OldSegment { id, last_sequence, bytes, reusable_bytes: 0, unrecorded: None }
    }
}
