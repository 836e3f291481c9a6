//! Iteration over a table: cursors for seeks in both directions and the sequential reader.

pub mod context_table_cursor;
pub mod key_buffer;
pub mod sequential_reader;
pub mod table_cursor;
