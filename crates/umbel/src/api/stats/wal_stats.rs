//! Statistics of the WAL.

use std::fmt;

use super::MEBIBYTE;
use crate::wal::Wal;

/// Write mode of the WAL, and counts of its segments since the store was opened.
#[derive(Debug, Clone, Default)]
pub struct LogStats {
    /// `true` if records are copied into a mapped file, without a system call; `false` if they are
    /// written with `write(2)`. `None` before the first record.
    pub is_mapped: Option<bool>,
    /// Reason why the WAL is not mapped, if known.
    pub why_unmapped: Option<String>,
    /// Bytes of the WAL prepared on disk that hold no record yet.
    pub spare_bytes: u64,
    /// Number of segments made in new files.
    pub segments_made: u64,
    /// Number of segments made in the files of earlier segments.
    pub segments_reused: u64,
    /// Number of segments made while a write waited for the segment.
    pub segments_awaited: u64,
}

pub(super) fn of_wal(wal: &Wal) -> LogStats {
    let shape = wal.stats();
    LogStats {
        is_mapped: shape.is_mapped,
        why_unmapped: shape.why_unmapped,
        spare_bytes: shape.spare_bytes,
        segments_made: shape.made,
        segments_reused: shape.reused,
        segments_awaited: shape.awaited,
    }
}

impl fmt::Display for LogStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match (self.is_mapped, &self.why_unmapped) {
            (None, _) => return Ok(()),
            (Some(true), _) => "mapped segments with recycled files".to_string(),
            (Some(false), Some(why)) => format!("written with write(2) to new files: {why}"),
            (Some(false), None) => "written with write(2) to new files".to_string(),
        };
        writeln!(
            f,
            "log: {mode}; {} segments new, {} in recycled files, {} awaited, {:.1} MiB ready",
            self.segments_made,
            self.segments_reused,
            self.segments_awaited,
            self.spare_bytes as f64 / MEBIBYTE
        )
    }
}
