//! Pages, cache lines and size of a filter, which are the same in memory and in files.

pub mod cache_line;
pub mod file_meta;
pub mod filter_page;
pub mod filter_sizing;
