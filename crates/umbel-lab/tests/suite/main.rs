//! Promises of the lab: no partial result counts as a result, no flagged measurement counts, and
//! engines that disagree stop the run.

mod results;
mod resume;
mod run;
mod test_engines;
mod unsound_measurements;
