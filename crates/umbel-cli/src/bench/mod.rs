//! `umbel bench`: LevelDB's and RocksDB's db_bench for Umbel, with their flags and output lines.
//!
//! Reads top down as the work goes: `flags` → `settings` and `plan` → `runner`, which opens a
//! store in a `folder`, prints the `header`, lets `workers` run each benchmark of `workload` and
//! gives what their `tally` counted to `report`; at the end `summary` says what the filters did.

mod absent;
pub mod flags;
pub mod folder;
mod header;
mod histogram;
mod json;
mod keys;
mod left_aside;
mod plan;
mod report;
mod runner;
mod settings;
mod summary;
mod tables;
mod tally;
mod values;
mod workers;
mod workload;

use std::path::Path;

use crate::errors::Outcome;
use crate::limits::Limits;

pub use left_aside::note_left_aside;

/// Runs the benchmarks. `db` is the folder that `--db` named.
pub fn run(
    flags: &flags::BenchFlags,
    db: Option<&Path>,
    json: bool,
    limits: Limits,
) -> Outcome<()> {
    let mut settings = settings::Settings::resolve(flags, json)?;
    settings.options = limits.put_into(settings.options);
    let plan = plan::parse(&settings)?;
    runner::Runner::new(settings, db)?.run(&plan)
}
