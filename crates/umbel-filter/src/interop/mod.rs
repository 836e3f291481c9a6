//! Filters as LevelDB and Apache Parquet store them.

pub mod leveldb_filter;
pub mod parquet_filter;
pub mod thrift;
