//! Blocked Bloom filters of tables and memtables: builder, owned filter, view, concurrent filter.

pub mod bloom_builder;
pub mod bloom_filter;
pub mod bloom_probe;
pub mod bloom_view;
pub mod concurrent_bloom;
