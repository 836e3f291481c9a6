//! The filters of a table as they are kept in memory.

pub mod resident_filter;
pub mod resident_prefix_filter;
