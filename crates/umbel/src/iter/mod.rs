//! Iteration over many sources: the merge of cursors, one cursor over a run of tables, and a
//! reader's visible entries at one sequence number.
//!
//! Nothing here depends on versions, files or locks; everything builds on `umbel_base::Cursor`.

mod cursor_position;
mod key_bounds;
pub mod range_tombstone_finder;
pub mod range_tombstone_runs;
mod shared_key_prefix;

pub mod borrowing_cursor;
pub mod hidden_run;
pub mod level_cursor;
pub mod merging_cursor;
pub mod mvcc_cursor;
