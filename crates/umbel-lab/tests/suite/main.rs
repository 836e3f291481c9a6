//! What the lab promises: nothing half-written is taken for a result, nothing unsound is counted,
//! and engines that disagree stop the run.

#[path = "suite/doubles.rs"]
mod doubles;
#[path = "suite/results.rs"]
mod results;
#[path = "suite/resume.rs"]
mod resume;
#[path = "suite/run.rs"]
mod run;
#[path = "suite/unsound.rs"]
mod unsound;
