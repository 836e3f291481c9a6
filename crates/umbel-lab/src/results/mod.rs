//! Results of a run: outcomes, their files, and the journal of a run under way.

pub mod journal;
pub mod outcome;
pub mod result_file;
pub mod sample_recorder;
