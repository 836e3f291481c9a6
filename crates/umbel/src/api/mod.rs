//! The public handles: store, keyspace, batch, snapshot, iterators and statistics.

pub mod batch;
pub mod db;
pub mod db_handle;
pub mod filter_advice;
pub mod iterator;
pub mod keyspace;
pub mod object_backup;
pub mod snapshot;
pub mod stats;
