//! The filters of a table as they are kept in memory.

pub mod table_filter;
pub mod table_prefix_filter;
