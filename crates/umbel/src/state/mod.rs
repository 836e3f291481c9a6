//! State that all handles of an open store share, and the batches that writers commit.

pub mod disk_full_backoff;
pub mod keyspace_existence;
pub mod keyspace_state;
pub mod snapshot_list;
pub mod store;
pub mod write_batch;
pub mod write_rate_watch;
