//! Compaction jobs: picker input, merge, preemption, cache warming, and early work for hidden
//! entries.

pub mod cache_warming;
pub mod compaction_job;
pub mod early_compaction;
pub mod early_flush;
pub mod hidden_entries_estimator;
pub mod hidden_tables;
pub mod joint_flush;
pub mod picker_input;
pub mod preemption;
pub mod version_sizes;
