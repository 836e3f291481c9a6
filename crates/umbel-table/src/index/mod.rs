//! The index of a table: its bytes, its builder, and the forms in memory in which it is searched.

pub mod in_memory_index;
pub mod index_block;
pub mod index_builder;
pub mod index_loading;
pub mod key_head_tree;
pub mod key_head_tree_builder;
pub mod top_level_index;
