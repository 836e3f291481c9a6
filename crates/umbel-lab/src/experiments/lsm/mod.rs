//! Experiments about the levels, the cache and the amplification of whole engines.

pub mod amplification;
pub mod cold_reads;
pub mod engine_comparison;
pub mod java_store_article;
pub mod level_bits;
