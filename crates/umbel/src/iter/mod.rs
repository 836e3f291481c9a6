//! Walking many sources as one: the merge of cursors, runs of tables as one cursor, and the view
//! that a reader at one sequence number has.
//!
//! Nothing here knows of versions, files or locks; everything is built on `umbel_base::Cursor`.

mod beginning;
mod bounds;
pub mod concat;
pub mod merge;
pub mod mvcc;
mod position;
mod tombstone_finder;
pub mod walker;

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod mvcc_tests;
#[cfg(test)]
pub mod testing;
