//! Bloom filters of each kind, over borrowed bytes: blocked, split block, standard, counting.

pub mod block_layout;
pub mod blocked_256;
pub mod blocked_512;
pub mod counter_array;
pub mod counting;
pub mod kind_view_trait;
pub mod split_block;
pub mod standard;
pub mod theoretical_rate;
