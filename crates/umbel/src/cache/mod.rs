//! The block cache and the memory that open cursors hold.

pub mod block_cache;
pub mod cursor_memory;
