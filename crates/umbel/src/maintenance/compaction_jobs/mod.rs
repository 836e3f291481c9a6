//! Compaction jobs: picker input, merge, preemption, cache warming and the garbage estimate.

pub mod cache_warming;
pub mod compaction_job;
pub mod hidden_entries_estimator;
pub mod picker_input;
pub mod preemption;
