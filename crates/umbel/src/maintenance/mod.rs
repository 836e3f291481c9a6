//! Background work: scheduler, flushes, compactions, advisor, WAL segments, memory limits.

pub mod advisor_job;
pub mod compaction_jobs;
pub mod disk_full_retry;
pub mod existence_key_scan;
pub mod existence_maintenance;
pub mod flush_job;
pub mod hidden_table_removal;
pub mod job_claim;
pub mod manual_compaction;
pub mod manual_flush;
pub mod memory_enforcement;
pub mod memtable_freeze;
pub mod memtable_limit;
pub mod scheduler;
pub mod shared_memtable_limit;
pub mod space_reclaim;
pub mod table_writer;
pub mod wal_recycling;
