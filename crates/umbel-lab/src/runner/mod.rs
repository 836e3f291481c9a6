//! Runs experiments in rounds: order, progress, free space, stopping and resuming.

pub mod free_space;
pub mod partial_results;
pub mod progress;
pub mod run_experiment;
pub mod stop_signal;
pub mod subject_order;
