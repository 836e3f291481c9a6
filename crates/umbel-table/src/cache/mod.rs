//! The slots of a table for cached blocks, which the block cache fills and empties.

pub mod block_map;
pub mod block_slots;
