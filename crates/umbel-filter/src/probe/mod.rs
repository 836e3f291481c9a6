//! Positions of a hash in a filter.

pub mod cache_line;
pub mod probe_positions;
pub mod split_block_lanes;
