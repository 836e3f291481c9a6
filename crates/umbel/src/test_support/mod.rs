//! Helpers of unit tests: examples of the format pages and a cursor over rows in memory.

pub mod format_examples;
pub mod row_cursor;
