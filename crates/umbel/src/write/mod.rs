//! The path of a write: write stall, long values, commit, then sync and work that became due.

pub mod blob_writer;
pub mod commit;
pub mod post_commit;
pub mod write_path;
pub mod write_stall;
