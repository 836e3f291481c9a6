//! An open table: point lookups, loading of blocks, filters and index blocks.

pub mod cache_warming;
pub mod filter_reader;
pub mod paged_index;
pub mod table_reader;
