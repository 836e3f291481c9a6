//! All experiments, each in a file of its own.

mod existence;
mod result_text;

pub mod eventstoredb_filter;
pub mod filters;
pub mod hashing;
pub mod killed_process;
pub mod lsm;
pub mod streams;

use crate::experiment::Experiment;

/// All experiments, in the order of the report.
pub const ALL: [&Experiment; 16] = [
    &filters::bits_per_key::EXPERIMENT,
    &filters::value_size::EXPERIMENT,
    &filters::hash_count::EXPERIMENT,
    &filters::bits_and_hashes::EXPERIMENT,
    &filters::more_bits_same_hashes::EXPERIMENT,
    &filters::read_missing::EXPERIMENT,
    &hashing::hash_function::EXPERIMENT,
    &hashing::hash_sharing::EXPERIMENT,
    &lsm::java_store_article::EXPERIMENT,
    &streams::new_streams::EXPERIMENT,
    &streams::filter_saturation::EXPERIMENT,
    &existence::EXPERIMENT,
    &lsm::level_bits::EXPERIMENT,
    &lsm::cold_reads::EXPERIMENT,
    &lsm::amplification::EXPERIMENT,
    &lsm::engine_comparison::EXPERIMENT,
];
