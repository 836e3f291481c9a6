//! Checks that run programs: audit, packaging, Parquet exchange, smoke test, instructions.

pub mod audit;
pub mod instruction_counts;
pub mod packaging;
pub mod parquet_exchange;
pub mod smoke;
