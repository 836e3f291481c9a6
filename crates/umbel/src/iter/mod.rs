//! Iteration over many sources: a merge of cursors, a cursor over a run of tables, and a cursor
//! over a reader's visible entries at one sequence number.
//!
//! No cursor in this folder depends on versions, files or locks; all build on `umbel_base::Cursor`.

mod cursor_position;
mod key_bounds;
mod key_head_prefix;
pub mod range_tombstone_finder;
pub mod range_tombstone_runs;

pub mod context_cursor;
pub mod hidden_run;
pub mod level_cursor;
pub mod merging_cursor;
pub mod mvcc_cursor;
