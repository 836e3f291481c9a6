//! Compaction: picks the tables, decides which entries survive, and throttles writers.

pub mod bottommost_picker;
pub mod compaction_stream;
pub mod picker;
pub mod retained_versions;
pub mod surviving_tombstones;
pub mod write_throttle;
