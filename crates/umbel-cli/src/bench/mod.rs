//! `umbel bench`: LevelDB's and RocksDB's db_bench for Umbel, with their flags and output lines.
//!
//! A run uses the modules in this order: `bench_flags`, `bench_settings` and `benchmark_plan`, then
//! `runner`. The runner opens a store in a `store_directory` and prints the `run_header`. A
//! `worker_pool` runs each benchmark of `workload`, whose `thread_stats` become `result_lines`. At
//! the end, `filter_summary` prints the counts of the filters.

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

/// Runs the benchmarks. `db` is the directory from `--db`.
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
