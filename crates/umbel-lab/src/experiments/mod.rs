//! Every experiment, one file each.

mod after_kill;
mod amplification;
mod bits_and_hashes;
mod bits_per_key;
mod cold;
mod existence;
mod existence_asking;
mod existence_opening;
mod existence_writing;
mod hash_article;
mod hash_count;
mod hash_function;
mod hash_sharing;
mod java_article;
mod leveldb_article;
mod levels;
mod look_then_put;
mod more_bits_same_hashes;
mod new_streams;
mod read_missing;
mod rivals;
mod saturation;
mod say;
mod stream_article;
mod synced_streams;
mod value_size;

use crate::experiment::Experiment;

/// All of them, in the order of the report.
pub const ALL: [&Experiment; 16] = [
    &bits_per_key::EXPERIMENT,
    &value_size::EXPERIMENT,
    &hash_count::EXPERIMENT,
    &bits_and_hashes::EXPERIMENT,
    &more_bits_same_hashes::EXPERIMENT,
    &read_missing::EXPERIMENT,
    &hash_function::EXPERIMENT,
    &hash_sharing::EXPERIMENT,
    &java_article::EXPERIMENT,
    &new_streams::EXPERIMENT,
    &saturation::EXPERIMENT,
    &existence::EXPERIMENT,
    &levels::EXPERIMENT,
    &cold::EXPERIMENT,
    &amplification::EXPERIMENT,
    &rivals::EXPERIMENT,
];
