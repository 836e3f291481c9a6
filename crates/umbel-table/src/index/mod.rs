//! The index of a table: its bytes, its builder, and the forms in which it is searched.

pub mod head_search;
pub mod head_search_builder;
pub mod in_memory_index;
pub mod index_block;
pub mod index_builder;
pub mod index_region;
pub mod top_level_index;
