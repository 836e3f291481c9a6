//! Compaction: choice of the tables, entries that survive, and write throttle.

pub mod bottommost_picker;
pub mod compaction_stream;
pub mod picker;
pub mod retained_versions;
pub mod surviving_tombstones;
pub mod write_throttle;
