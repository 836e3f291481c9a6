//! `umbel bench`: LevelDB's and RocksDB's db_bench for Umbel, with their flags and output lines.
//!
//! Reads top down as the work goes: `flags` → `settings` and `plan` → `runner`, which opens a
//! store in a `directory`, prints the `header`, lets `workers` run each benchmark of `workload` and
//! gives what their `tally` counted to `report`; at the end `summary` says what the filters did.

mod bench_settings;
mod benchmark_plan;
mod filter_summary;
mod histogram;
mod ignored_flags;
mod key_generator;
mod result_lines;
mod results_json;
mod run_header;
mod runner;
mod stats_tables;
mod thread_stats;
mod unsupported_benchmarks;
mod value_generator;
mod worker_pool;
mod workload;

pub mod bench_flags;
pub mod store_directory;

use std::path::Path;

use crate::errors::CommandResult;
use crate::global_options::StoreLimits;

pub use ignored_flags::warn_ignored_flags;

/// Runs the benchmarks. `db` is the directory that `--db` named.
pub fn run(
    flags: &bench_flags::BenchFlags,
    db: Option<&Path>,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let mut settings = bench_settings::Settings::resolve(flags, json)?;
    settings.options = limits.apply_to(settings.options);
    let plan = benchmark_plan::parse(&settings)?;
    runner::Runner::new(settings, db)?.run(&plan)
}
