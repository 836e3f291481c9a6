//! How the write-ahead log is written.

use std::fmt;

use super::MEBIBYTE;
use crate::wal::Wal;

/// How the log is written, and what became of its segments since the store was opened.
#[derive(Debug, Clone, Default)]
pub struct LogStats {
    /// Whether records are copied into a mapped file, which takes no system call, or written with
    /// `write(2)`; `None` before the first one.
    pub is_mapped: Option<bool>,
    /// Why it is not mapped, where that is known.
    pub why_unmapped: Option<String>,
    /// Bytes on the disk that were made ready and hold no record yet.
    pub spare_bytes: u64,
    /// Segments made in new files.
    pub segments_made: u64,
    /// Segments made in the files of earlier ones.
    pub segments_reused: u64,
    /// Segments that were made while a write waited for them.
    pub segments_awaited: u64,
}

pub(super) fn of_wal(wal: &Wal) -> LogStats {
    let shape = wal.shape();
    LogStats {
        is_mapped: shape.is_mapped,
        why_unmapped: shape.why_unmapped,
        spare_bytes: shape.spare_bytes,
        segments_made: shape.made,
        segments_reused: shape.reused,
        segments_awaited: shape.waited,
    }
}

impl fmt::Display for LogStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match (self.is_mapped, &self.why_unmapped) {
            (None, _) => return Ok(()),
            (Some(true), _) => "mapped segments, whose files are used again".to_string(),
            (Some(false), Some(why)) => format!("written with write(2) to new files: {why}"),
            (Some(false), None) => "written with write(2) to new files".to_string(),
        };
        writeln!(
            f,
            "log: {way}; {} segments new, {} in used files, {} awaited, {:.1} MiB ready",
            self.segments_made,
            self.segments_reused,
            self.segments_awaited,
            self.spare_bytes as f64 / MEBIBYTE
        )
    }
}
