//! Derived seeds, tallies, reports, and directories on a real disk for campaigns.

pub mod active_failpoint;
pub mod bulk_entries;
pub mod campaign_tally;
pub mod derived_seed;
pub mod failpoint_list;
pub mod report_files;
pub mod scratch_directory;
pub mod seeded_campaign;
