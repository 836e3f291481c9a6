//! Compares filters of `umbel-filter` with those of other crates, in one run.
//!
//! Every filter gets the same keys, or the same hashes of them, and the same probes in the same
//! order. The filters take turns, so that other load on the machine affects all of them. Times are
//! processor time of the probing thread. Loops are inside each filter's own code, so that calls are
//! inlined as in a program that knows its filter.

mod third_party;
mod umbel_blocked;
mod umbel_kinds;

pub mod candidate_filter;
pub mod candidate_list;
pub mod filter_arguments;
pub mod filter_keys;
pub mod filter_report;
pub mod filter_run;
