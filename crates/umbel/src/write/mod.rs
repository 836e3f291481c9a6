//! The path of a write: write stall, blobs, commit queue, WAL and memtables.

pub mod blob_writer;
pub mod commit;
pub mod write_path;
pub mod write_stall;
