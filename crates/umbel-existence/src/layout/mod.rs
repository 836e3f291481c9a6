//! Pages, cache lines and size of a filter, as memory and files share them.

pub mod cache_line;
pub mod file_meta;
pub mod filter_page;
pub mod filter_sizing;
