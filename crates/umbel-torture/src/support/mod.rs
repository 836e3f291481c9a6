//! Seeded numbers, tallies, reports, and directories on a real disk for campaigns.

pub mod bulk_entries;
pub mod campaign_tally;
pub mod report_files;
pub mod scratch_directory;
pub mod seeded_campaign;
pub mod seeded_random;
