//! Positions of a hash in a filter.

pub mod cache_line;
pub mod probing;
pub mod split_block_lanes;
